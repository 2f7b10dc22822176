"""Attention passes against a softmax written out, and passes merged against one pass over everything."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from layerline.frames import PageRun, Span
from node.model import attention, step
from node.model.attention import AttentionPass, attend, flash_pass, plain_pass
from node.model.kv_pool import FloatPool
from node.model.step import Step

CPU = torch.device("cpu")
PASSES = [flash_pass, plain_pass]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def written_out(q_TKGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("tkgd,ksd->tkgs", q_TKGD.double(), k_KSD.double()) / math.sqrt(q_TKGD.shape[-1])
    if causal:
        hidden = torch.ones(q_TKGD.shape[0], k_KSD.shape[1]).triu(1).bool()
        scores.masked_fill_(hidden[:, None, None], -math.inf)
    out = torch.einsum("tkgs,ksd->tkgd", scores.softmax(-1), v_KSD.double())
    return out.float(), scores.logsumexp(-1).float()


@pytest.mark.parametrize("attend_pass", PASSES)
@pytest.mark.parametrize(("kv_heads", "group", "head_dim"), [(3, 3, 64), (2, 7, 64), (1, 1, 2), (4, 1, 80)])
@pytest.mark.parametrize("rows", [1, 2, 33])
def test_a_pass_is_softmax_attention(
    attend_pass: AttentionPass, kv_heads: int, group: int, head_dim: int, rows: int
) -> None:
    q_TKGD = random(rows, kv_heads, group, head_dim)
    for slots, causal in ((1, False), (200, False), (rows, True)):
        k_KSD, v_KSD = random(2, kv_heads, slots, head_dim, seed=1)
        expected = written_out(q_TKGD, k_KSD, v_KSD, causal=causal)
        made = attend_pass(q_TKGD, k_KSD[None], v_KSD[None], causal)
        torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-5)


def test_rows_in_blocks_give_what_they_give_together(monkeypatch: pytest.MonkeyPatch) -> None:
    q_TKGD, (k_KSD, v_KSD) = random(11, 2, 3, 8), random(2, 2, 11, 8)
    for block_rows in (1, 4, 11):
        monkeypatch.setattr(attention, "SCORES_BYTES", block_rows * 2 * 3 * 11 * 4)
        for causal in (False, True):
            expected = written_out(q_TKGD, k_KSD, v_KSD, causal=causal)
            torch.testing.assert_close(plain_pass(q_TKGD, k_KSD[None], v_KSD[None], causal), expected)


@pytest.mark.parametrize("attend_pass", PASSES)
@pytest.mark.parametrize("grouped_rows", [1, 512])
@pytest.mark.parametrize("most_slots", [3, 1 << 40])
def test_scattered_runs_merge_to_one_pass_and_other_slots_are_never_read(
    monkeypatch: pytest.MonkeyPatch, attend_pass: AttentionPass, grouped_rows: int, most_slots: int
) -> None:
    """Three sequences; every slot that is none's holds NaN."""
    monkeypatch.setattr(step, "GROUPED_ROWS", grouped_rows)
    spans = (_span(1, 5, 8, [9, 3, 6, 0]), _span(2, 13, 1, [5, 7, 8, 1]), _span(3, 0, 6, [4, 10]))
    made = Step.of(spans, 4, most_slots=most_slots, device=CPU)
    pool = FloatPool(torch.full((2, 2, 44, 16), math.nan), torch.float32)
    contents = [random(14, 2, 2, 16, seed=span.sequence) for span in spans]
    for span, content in zip(spans, contents, strict=True):
        end = span.start + span.count
        before = Step.of((dataclasses.replace(span, start=0, count=end),), 4, most_slots=most_slots, device=CPU)
        pool.write(before.slots_T, content[:end])
    q_TKGD = random(15, 2, 3, 16, seed=3)
    out_TKGD = attend(attend_pass, q_TKGD, pool, made.groups[0])
    rows = [(content, position) for span, content in zip(spans, contents, strict=True) for position in positions(span)]
    for row, (content, position) in enumerate(rows):
        k_KSD, v_KSD = content[: position + 1].permute(1, 2, 0, 3)
        expected = written_out(q_TKGD[row : row + 1], k_KSD, v_KSD, causal=False)[0]
        torch.testing.assert_close(out_TKGD[row : row + 1], expected, atol=1e-5, rtol=1e-5)


def positions(span: Span) -> range:
    return range(span.start, span.start + span.count)


def _span(sequence: int, start: int, count: int, pages: list[int]) -> Span:
    runs = tuple(PageRun(first=page, count=1) for page in pages)
    return Span(sequence=sequence, start=start, count=count, pages=runs)
