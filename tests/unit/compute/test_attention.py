"""Attention over pages against a softmax written out in float64: one pass, passes merged, all that a layer may ask."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from layerline.frames import PageRun, Span
from layerline.models.spec import AttentionSpec
from node.model.attention import passes, pieces
from node.model.attention.backend import LayerAttention
from node.model.attention.passes import AttentionPass, FlashPass, PlainPass, attention_pass
from node.model.attention.run_attention import RunAttention

CPU = torch.device("cpu")
PLAIN = AttentionSpec(heads=6, kv_heads=2, head_dim=16, value_dim=16, rope=None)
LAYERS = {
    "plain": PLAIN,
    "a scale of its own": replace(PLAIN, scale=0.7),
    "a soft cap": replace(PLAIN, soft_cap=1.5),
    "values smaller than keys": replace(PLAIN, value_dim=10),
    "values larger than keys": replace(PLAIN, value_dim=24),
    "a window": replace(PLAIN, window_tokens=3),
    "chunks": replace(PLAIN, chunk_tokens=4),
    "all of it": replace(PLAIN, scale=0.9, soft_cap=2.0, value_dim=12, window_tokens=5),
}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def written_out(
    q_TKGD: Tensor, k_KSD: Tensor, v_KSE: Tensor, spec: AttentionSpec, *, causal: bool, sinks_KG: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Dense attention in float64, and the log-sum-exp of the scores of positions."""
    scores_TKGS = torch.einsum("tkgd,ksd->tkgs", q_TKGD.double(), k_KSD.double())
    scores_TKGS *= 1 / math.sqrt(spec.head_dim) if spec.scale is None else spec.scale
    if spec.soft_cap:
        scores_TKGS = spec.soft_cap * torch.tanh(scores_TKGS / spec.soft_cap)
    if causal:
        hidden = torch.ones(q_TKGD.shape[0], k_KSD.shape[1]).triu(1).bool()
        scores_TKGS.masked_fill_(hidden[:, None, None], -math.inf)
    lse_TKG = scores_TKGS.logsumexp(-1)
    if sinks_KG is not None:
        sinks_TKG1 = sinks_KG.double().expand(lse_TKG.shape)[..., None]
        scores_TKGS = torch.cat([scores_TKGS, sinks_TKG1], dim=-1)
    weights_TKGS = scores_TKGS.softmax(-1)[..., : k_KSD.shape[1]]
    return torch.einsum("tkgs,kse->tkge", weights_TKGS, v_KSE.double()).float(), lse_TKG.float()


@pytest.mark.parametrize("attend_pass", [FlashPass, PlainPass])
@pytest.mark.parametrize(("kv_heads", "group", "head_dim"), [(3, 3, 64), (2, 7, 64), (1, 1, 2), (4, 1, 80)])
@pytest.mark.parametrize("rows", [1, 2, 33])
def test_a_pass_is_softmax_attention(
    attend_pass: type[FlashPass | PlainPass], kv_heads: int, group: int, head_dim: int, rows: int
) -> None:
    spec = AttentionSpec(heads=kv_heads * group, kv_heads=kv_heads, head_dim=head_dim, value_dim=head_dim, rope=None)
    made: AttentionPass = FlashPass(spec.score_scale) if attend_pass is FlashPass else PlainPass(spec.score_scale, 0.0)
    q_TKGD = random(rows, kv_heads, group, head_dim)
    for slots, causal in ((1, False), (200, False), (rows, True)):
        k_KSD, v_KSE = random(2, kv_heads, slots, head_dim, seed=1)
        expected = written_out(q_TKGD, k_KSD, v_KSE, spec, causal=causal)
        torch.testing.assert_close(made(q_TKGD, k_KSD[None], v_KSE[None], causal), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("spec", LAYERS.values(), ids=LAYERS)
def test_the_pass_that_is_chosen_does_what_the_layer_asks(spec: AttentionSpec) -> None:
    q_TKGD, k_KSD, v_KSE = random(9, 2, 3, 16), 2 * random(2, 9, 16, seed=1), random(2, 9, spec.value_dim, seed=2)
    for causal in (False, True):
        expected = written_out(q_TKGD, k_KSD, v_KSE, spec, causal=causal)
        made = attention_pass(spec, CPU)(q_TKGD, k_KSD[None], v_KSE[None], causal)
        torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)


def test_rows_in_blocks_give_what_they_give_together(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(PLAIN, head_dim=8, value_dim=8)
    q_TKGD, (k_KSD, v_KSE) = random(11, 2, 3, 8), random(2, 2, 11, 8)
    for block_rows in (1, 4, 11):
        monkeypatch.setattr(passes, "SCORES_BYTES", block_rows * 2 * 3 * 11 * 4)
        for causal in (False, True):
            expected = written_out(q_TKGD, k_KSD, v_KSE, spec, causal=causal)
            made = PlainPass(spec.score_scale, 0.0)(q_TKGD, k_KSD[None], v_KSE[None], causal)
            torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("grouped_rows", [1, 512])
@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("spec", LAYERS.values(), ids=LAYERS)
def test_every_row_reads_its_own_sequence_on_scattered_pages(
    monkeypatch: pytest.MonkeyPatch, spec: AttentionSpec, kv_dtype: str, grouped_rows: int, sinks: bool
) -> None:
    """Three sequences: one chunk on runs, one row on scattered pages, a whole prompt. Other slots hold NaN."""
    monkeypatch.setattr(pieces, "GROUPED_ROWS", grouped_rows)
    sinks_KG = random(2, 3, seed=7) if sinks else None
    attention = allocated(spec, kv_dtype, sinks_KG)
    spans = (span(1, 5, 8, [9, 3, 6, 0]), span(2, 13, 1, [5, 7, 8, 1]), span(3, 0, 6, [4, 10]))
    keys, values = ({s.sequence: filled(s, size, seed) for s in spans} for size, seed in ((16, 0), (spec.value_dim, 9)))
    for s in spans:
        if s.start:
            before = attention.plan([replace(s, start=0, count=s.start)])
            before.attend(1, random(s.start, 2, 3, 16), (keys[s.sequence][: s.start], values[s.sequence][: s.start]))
    q_TKGD = random(15, 2, 3, 16, seed=3)
    k_TKD, v_TKE = (torch.cat([all_[s.sequence][s.start :] for s in spans]) for all_ in (keys, values))
    out_TKGE = attention.plan(spans).attend(1, q_TKGD, (k_TKD, v_TKE))
    places = [(s, position) for s in spans for position in range(s.start, s.start + s.count)]
    for row, (own, position) in enumerate(places):
        first = max(0, position + 1 - spec.window_tokens) if spec.window_tokens else 0
        first = position // spec.chunk_tokens * spec.chunk_tokens if spec.chunk_tokens else first
        k_KSD, v_KSE = (all_[own.sequence][first : position + 1].transpose(0, 1) for all_ in (keys, values))
        expected, _ = written_out(q_TKGD[row : row + 1], k_KSD, v_KSE, spec, causal=False, sinks_KG=sinks_KG)
        torch.testing.assert_close(out_TKGE[row : row + 1], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("sinks", [False, True])
def test_a_step_whose_rows_need_no_merging(sinks: bool) -> None:
    """A prompt from its beginning is one pass; sinks take their share all the same."""
    sinks_KG = random(2, 3, seed=7) if sinks else None
    q_TKGD, k_TKD, v_TKE = random(7, 2, 3, 16), random(7, 2, 16, seed=1), random(7, 2, 16, seed=2)
    out_TKGE = allocated(PLAIN, "float32", sinks_KG).plan([span(1, 0, 7, [3, 4])]).attend(1, q_TKGD, (k_TKD, v_TKE))
    k_KSD, v_KSE = k_TKD.transpose(0, 1), v_TKE.transpose(0, 1)
    expected, _ = written_out(q_TKGD, k_KSD, v_KSE, PLAIN, causal=True, sinks_KG=sinks_KG)
    torch.testing.assert_close(out_TKGE, expected, atol=1e-5, rtol=1e-5)


def allocated(spec: AttentionSpec, kv_dtype: str, sinks_KG: Tensor | None) -> RunAttention:
    """Two layers, of which the second is `spec`; every slot holds NaN."""
    layers = [LayerAttention(spec=PLAIN), LayerAttention(spec=spec, sinks_KG=sinks_KG)]
    attention = RunAttention.allocate(
        layers, pages=11, page_tokens=4, kv_dtype=kv_dtype, dtype=torch.float32, device=CPU
    )
    everywhere = attention.plan([span(1, 0, 44, list(range(11)))])
    for layer, spec_ in enumerate((PLAIN, spec)):
        nan_TKE = torch.full((44, 2, spec_.value_dim), math.nan)
        everywhere.attend(layer, random(44, 2, 3, 16), (torch.full((44, 2, 16), math.nan), nan_TKE))
    return attention


def filled(s: Span, size: int, seed: int) -> Tensor:
    """Numbers [positions, K, size] that bfloat16 has exactly."""
    return random(s.start + s.count, 2, size, seed=s.sequence + seed).bfloat16().float()


def span(sequence: int, start: int, count: int, pages: list[int]) -> Span:
    runs = tuple(PageRun(first=page, count=1) for page in pages)
    return Span(sequence=sequence, start=start, count=count, pages=runs)
