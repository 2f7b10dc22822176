"""Every form of a matrix gives the same product, and norms are those of torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from node.model.linear.forms import (
    Linear,
    PackedLinear,
    PlainLinear,
    WeightFirstLinear,
    can_pack,
    owned_linear,
    shared_linear,
)
from node.model.norm import Norm


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("rows", [1, 2, 16, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_chosen_forms_give_the_product(rows: int, dtype: torch.dtype) -> None:
    weight_OI, bias_O = random(50, 36, dtype=dtype), random(50, seed=1, dtype=dtype)
    x_TI = random(rows, 36, seed=2, dtype=dtype)
    expected_TO = x_TI.double() @ weight_OI.double().t()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    made: list[tuple[Linear, Tensor]] = [
        (owned_linear(weight_OI), expected_TO),
        (owned_linear(weight_OI, bias_O), expected_TO + bias_O.double()),
        (shared_linear(weight_OI), expected_TO),
        (WeightFirstLinear(weight_OI), expected_TO),
    ]
    with torch.inference_mode():
        for linear, expected in made:
            product_TO = linear(x_TI)
            assert product_TO.dtype == dtype
            torch.testing.assert_close(product_TO.double(), expected, atol=tolerance, rtol=tolerance)


def test_float32_is_never_packed() -> None:
    assert isinstance(owned_linear(random(8, 8)), PlainLinear)
    assert isinstance(shared_linear(random(8, 8)), PlainLinear)


def test_bfloat16_is_packed_where_it_can_be_and_a_shared_matrix_never_is() -> None:
    weight_OI = random(8, 8, dtype=torch.bfloat16)
    assert isinstance(owned_linear(weight_OI), PackedLinear) == can_pack(weight_OI)
    assert not isinstance(shared_linear(weight_OI), PackedLinear)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_that_of_torch(dtype: torch.dtype) -> None:
    weight_C, x_TC = random(48, dtype=dtype), random(5, 48, seed=1, dtype=dtype) * 30
    x_TC[0] = 0
    x_TC[1] *= 1e-6
    expected = functional.rms_norm(x_TC.double(), (48,), weight_C.double(), 1e-5).to(dtype)
    torch.testing.assert_close(Norm(weight_C, 1e-5)(x_TC), expected)
