"""A gated delta net gives what transformers' does, however its rows are cut into runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from layerline.models.recurrent import DeltaNetSpec
from layerline.models.workspace import CHUNK_ROWS
from node.model.recurrent.convolution import Convolution
from node.model.recurrent.delta_net import DeltaNet, gated_delta_rule_

SPEC = DeltaNetSpec(value_heads=6, key_heads=2, key_dim=16, value_dim=24, taps=4)
HIDDEN, ROWS, RUNS = 32, 150, 2
CUTS = {"whole": (ROWS,), "rows": (1,) * ROWS, "uneven": (1, 2, 64, 1, 7, 65, 10), "chunks": (64, 64, 22)}


def heads_of(seed: int = 0) -> dict[str, Tensor]:
    """Queries and keys of length 1, values, and how heads forget and write, as the rule takes them."""
    generator = torch.Generator().manual_seed(seed)
    shape = (RUNS, SPEC.value_heads, ROWS)
    q, k = (torch.randn(*shape, SPEC.key_dim, generator=generator) for _ in range(2))
    return {
        "q": torch.nn.functional.normalize(q, dim=-1),
        "k": torch.nn.functional.normalize(k, dim=-1),
        "v": torch.randn(*shape, SPEC.value_dim, generator=generator),
        "g": -(torch.rand(shape, generator=generator) ** 4) * 20,
        "beta": torch.rand(shape, generator=generator),
    }


def ruled(heads: dict[str, Tensor], sizes: Sequence[int], state: Tensor) -> Tensor:
    """What the rule gives for runs of these sizes."""
    q, k, v, g, beta = (torch.split(heads[name], list(sizes), dim=2) for name in ("q", "k", "v", "g", "beta"))
    made = [gated_delta_rule_(q[i], k[i], v[i], g[i], beta[i], state) for i in range(len(sizes))]
    return torch.cat(made, dim=2)


@pytest.mark.parametrize("form", ["recurrent", "chunk"])
@pytest.mark.parametrize("cut", CUTS)
def test_the_rule_is_that_of_transformers(form: str, cut: str) -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as reference  # noqa: PLC0415

    heads, start = heads_of(), torch.randn(RUNS, SPEC.value_heads, SPEC.key_dim, SPEC.value_dim)
    rule = getattr(reference, f"torch_{form}_gated_delta_rule")
    swapped = {name: rows.transpose(1, 2) for name, rows in heads.items()}
    expected, left = rule(
        query=swapped["q"] * SPEC.key_dim**0.5,
        key=swapped["k"],
        value=swapped["v"],
        g=swapped["g"],
        beta=swapped["beta"],
        initial_state=start.clone(),
        output_final_state=True,
    )
    state = start.clone()
    found = ruled(heads, CUTS[cut], state).transpose(1, 2)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(state, left, rtol=1e-4, atol=2e-5)


def test_a_state_that_is_not_gone_on_from_gives_something_else() -> None:
    heads, state = heads_of(), torch.zeros(RUNS, SPEC.value_heads, SPEC.key_dim, SPEC.value_dim)
    whole = ruled(heads, (ROWS,), state.clone())
    halves = [{name: rows[:, :, part] for name, rows in heads.items()} for part in (slice(70), slice(70, None))]
    cut = torch.cat([ruled(half, (half["g"].shape[2],), state.clone()) for half in halves], dim=2)
    assert not torch.allclose(cut[:, :, 70:], whole[:, :, 70:], atol=1e-2)


def test_decays_beyond_what_a_number_can_hold_are_zeros() -> None:
    heads = heads_of()
    heads["g"] = heads["g"] * 100
    state = torch.ones(RUNS, SPEC.value_heads, SPEC.key_dim, SPEC.value_dim)
    found = ruled(heads, (ROWS,), state)
    expected = ruled(heads, (1,) * ROWS, torch.ones_like(state))
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)


def modules() -> tuple[Any, DeltaNet]:
    """Transformers' layer with random weights, and ours with the same."""
    from transformers.models.qwen3_next import configuration_qwen3_next as configuration  # noqa: PLC0415
    from transformers.models.qwen3_next import modeling_qwen3_next as reference  # noqa: PLC0415

    config = configuration.Qwen3NextConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        linear_num_value_heads=SPEC.value_heads,
        linear_num_key_heads=SPEC.key_heads,
        linear_key_head_dim=SPEC.key_dim,
        linear_value_head_dim=SPEC.value_dim,
        linear_conv_kernel_dim=SPEC.taps,
    )
    torch.manual_seed(5)
    module = reference.Qwen3NextGatedDeltaNet(config, 0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module, DeltaNet(
        spec=SPEC,
        convolution=Convolution(weight_CL=module.conv1d.weight.detach()[:, 0], bias_C=None),
        decay_H=-module.A_log.detach().exp(),
        step_bias_H=module.dt_bias.detach(),
        norm_P=module.norm.weight.detach(),
        norm_epsilon=config.rms_norm_eps,
    )


def made_by(module: Any, x_BTC: Tensor) -> Tensor:
    """What the first matrix makes of rows, in the order q, k, v, z, b, a."""
    parts = module.fix_query_key_value_ordering(module.in_proj_qkvz(x_BTC), module.in_proj_ba(x_BTC))
    return torch.cat([part.flatten(2) for part in parts], dim=-1)


@pytest.mark.parametrize("cut", CUTS)
@torch.no_grad()
def test_the_layer_is_that_of_transformers(cut: str) -> None:
    module, own = modules()
    x_BTC = torch.randn(RUNS, ROWS, HIDDEN)
    expected = module(x_BTC)
    state_BN = torch.zeros(RUNS, SPEC.state_numbers)
    made_BTM = made_by(module, x_BTC)
    found = torch.cat([own(run, state_BN) for run in torch.split(made_BTM, list(CUTS[cut]), dim=1)], dim=1)
    torch.testing.assert_close(module.out_proj(found), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_runs_of_several_sequences_do_not_meet() -> None:
    module, own = modules()
    made_BTM = made_by(module, torch.randn(RUNS, CHUNK_ROWS + 3, HIDDEN))
    together = own(made_BTM, torch.zeros(RUNS, SPEC.state_numbers))
    for run in range(RUNS):
        alone = own(made_BTM[run : run + 1], torch.zeros(1, SPEC.state_numbers))
        torch.testing.assert_close(together[run : run + 1], alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_tiled_heads_are_the_same_heads_in_another_order() -> None:
    _, own = modules()
    made_BTM, readers = torch.randn(RUNS, 70, SPEC.made_numbers), SPEC.value_heads // SPEC.key_heads
    order = torch.tensor([head % SPEC.key_heads * readers + head // SPEC.key_heads for head in range(SPEC.value_heads)])
    numbers = (order[:, None] * SPEC.value_dim + torch.arange(SPEC.value_dim)).flatten()
    sizes = list(itertools.accumulate([SPEC.key_numbers * 2, SPEC.value_numbers, SPEC.value_numbers, len(order)]))
    rows = torch.cat(
        [torch.arange(sizes[0]), *(sizes[i] + part for i, part in enumerate((numbers, numbers, order, order)))]
    )
    tiled = DeltaNet(
        spec=DeltaNetSpec(value_heads=6, key_heads=2, key_dim=16, value_dim=24, taps=4, tiled=True),
        convolution=Convolution(weight_CL=own.convolution.weight_CL[rows[: SPEC.conv_channels]], bias_C=None),
        decay_H=own.decay_H[order],
        step_bias_H=own.step_bias_H[order],
        norm_P=own.norm_P,
        norm_epsilon=own.norm_epsilon,
    )
    expected = own(made_BTM, torch.zeros(RUNS, SPEC.state_numbers))
    found = tiled(made_BTM[..., rows].contiguous(), torch.zeros(RUNS, SPEC.state_numbers))
    torch.testing.assert_close(found, expected[..., numbers], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(found, expected, atol=1e-2)
