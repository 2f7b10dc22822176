"""What a Mamba 2 layer makes is what transformers' does, however its rows are cut into runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from layerline.models.recurrent import Mamba2Spec
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.mamba2 import CHUNK_ROWS, Mamba2

SPEC = Mamba2Spec(heads=6, head_dim=24, groups=2, state_dim=16, taps=4)
HIDDEN, ROWS, RUNS = 48, 150, 2
CUTS = {"whole": (ROWS,), "rows": (1,) * ROWS, "uneven": (1, 2, 64, 1, 7, 65, 10), "chunks": (64, 64, 22)}


def modules(spread: float = 0.5) -> tuple[Any, Mamba2]:
    """Transformers' layer with random weights, and ours with the same."""
    from transformers.models.granitemoehybrid import configuration_granitemoehybrid as configuration  # noqa: PLC0415
    from transformers.models.granitemoehybrid import modeling_granitemoehybrid as reference  # noqa: PLC0415

    config = configuration.GraniteMoeHybridConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        mamba_n_heads=SPEC.heads,
        mamba_d_head=SPEC.head_dim,
        mamba_expand=SPEC.output_numbers // HIDDEN,
        mamba_n_groups=SPEC.groups,
        mamba_d_state=SPEC.state_dim,
        mamba_d_conv=SPEC.taps,
    )
    torch.manual_seed(5)
    module = reference.GraniteMoeHybridMambaLayer(config, 0)
    for name, parameter in module.named_parameters():
        torch.nn.init.normal_(parameter, std=spread if name == "dt_bias" else 0.5)
    assert module.conv1d.bias is not None
    return module, Mamba2(
        spec=SPEC,
        convolution=Convolution(weight_CL=module.conv1d.weight.detach()[:, 0], bias_C=module.conv1d.bias.detach()),
        decay_H=-module.A_log.detach().exp(),
        skip_H=module.D.detach(),
        step_bias_H=module.dt_bias.detach(),
        norm_O=module.norm.weight.detach(),
        norm_epsilon=config.rms_norm_eps,
    )


def in_runs(own: Mamba2, made_BTM: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What it makes of runs of these sizes, and the state that they leave."""
    state_BN = torch.zeros(len(made_BTM), own.spec.state_numbers)
    return torch.cat([own(run, state_BN) for run in torch.split(made_BTM, list(sizes), dim=1)], dim=1), state_BN


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("spread", [0.5, 20.0], ids=["usual steps", "long and short steps"])
@torch.no_grad()
def test_the_layer_is_that_of_transformers(cut: str, spread: float) -> None:
    module, own = modules(spread)
    x_BTC = torch.randn(RUNS, ROWS, HIDDEN)
    expected = module(x_BTC)
    found, _ = in_runs(own, module.in_proj(x_BTC), CUTS[cut])
    torch.testing.assert_close(module.out_proj(found), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_rows_of_numbers_that_take_less_give_as_many() -> None:
    module, own = modules()
    made_BTM = module.in_proj(torch.randn(RUNS, 5, HIDDEN))
    found, state_BN = in_runs(own, made_BTM.bfloat16(), (5,))
    assert (found.dtype, state_BN.dtype) == (torch.bfloat16, torch.float32)
    expected, _ = in_runs(own, made_BTM.bfloat16().float(), (5,))
    torch.testing.assert_close(found, expected.bfloat16())


@torch.no_grad()
def test_a_cut_leaves_the_same_state() -> None:
    _, own = modules()
    made_BTM = torch.randn(RUNS, ROWS, SPEC.made_numbers)
    _, whole = in_runs(own, made_BTM, (ROWS,))
    _, rows = in_runs(own, made_BTM, (1,) * ROWS)
    torch.testing.assert_close(rows, whole, rtol=1e-4, atol=1e-5)
    _, without_end = in_runs(own, made_BTM[:, :-1], (ROWS - 1,))
    assert not torch.allclose(without_end, whole, atol=1e-2)


@torch.no_grad()
def test_a_state_that_is_not_gone_on_from_gives_something_else() -> None:
    _, own = modules()
    made_BTM = torch.randn(RUNS, CHUNK_ROWS + 9, SPEC.made_numbers)
    whole, _ = in_runs(own, made_BTM, (CHUNK_ROWS + 9,))
    end, _ = in_runs(own, made_BTM[:, CHUNK_ROWS:], (9,))
    assert not torch.allclose(end, whole[:, CHUNK_ROWS:], atol=1e-2)


@torch.no_grad()
def test_runs_of_several_sequences_do_not_meet() -> None:
    _, own = modules()
    made_BTM = torch.randn(RUNS, CHUNK_ROWS + 3, SPEC.made_numbers)
    together, _ = in_runs(own, made_BTM, (CHUNK_ROWS + 3,))
    for run in range(RUNS):
        alone, _ = in_runs(own, made_BTM[run : run + 1], (CHUNK_ROWS + 3,))
        torch.testing.assert_close(together[run : run + 1], alone, rtol=1e-5, atol=1e-5)
