"""Every form of the gated matrices gives the same product, and the right one is chosen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from node.model.gated import JoinedGated, PackedGated, owned_gated
from node.model.linear import PlainLinear, can_pack


def random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("rows", [1, 2, 16, 65, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [1, 24, 77])
def test_every_form_gives_the_gated_product(rows: int, dtype: torch.dtype, width: int) -> None:
    gate_up_EI = random(2 * width, 36, seed=0, dtype=dtype)
    x_TI = random(rows, 36, seed=1, dtype=dtype)
    gate_TF, up_TF = (x_TI.double() @ gate_up_EI.double().t()).chunk(2, dim=1)
    expected_TF = functional.silu(gate_TF) * up_TF
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    with torch.inference_mode():
        for gated in (owned_gated(gate_up_EI), JoinedGated(PlainLinear(gate_up_EI))):
            h_TF = gated(x_TI)
            assert h_TF.dtype == dtype
            assert h_TF.is_contiguous()
            torch.testing.assert_close(h_TF.double(), expected_TF, atol=tolerance, rtol=tolerance)


def test_a_gate_far_from_nought_is_shut_or_open() -> None:
    gate_up_EI = torch.tensor([[-1.0], [1.0], [1.0], [1.0]], dtype=torch.bfloat16)
    with torch.inference_mode():
        h_TF = owned_gated(gate_up_EI)(torch.tensor([[1000.0], [0.0]], dtype=torch.bfloat16))
    torch.testing.assert_close(h_TF.double(), torch.tensor([[0.0, 1e6], [0.0, 0.0]]).double(), atol=0, rtol=1e-2)


def test_the_form_follows_that_of_a_single_matrix() -> None:
    gate_up_EI = random(16, 8, seed=0, dtype=torch.bfloat16)
    assert isinstance(owned_gated(gate_up_EI), PackedGated) == can_pack(gate_up_EI)
    assert isinstance(owned_gated(gate_up_EI.float()), JoinedGated)
