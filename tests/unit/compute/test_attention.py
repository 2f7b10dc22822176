"""Attention passes against a softmax written out, and passes merged against one pass over everything."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from layerline.frames import PageRun, Span
from node.model import attention
from node.model.attention import AttentionPass, attend, flash_pass, plain_pass
from node.model.kv_pool import LayerPool
from node.model.step import Step

CPU = torch.device("cpu")
PASSES = [flash_pass, plain_pass]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def written_out(q_KTGD: Tensor, k_KSD: Tensor, v_KSD: Tensor, *, causal: bool) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("ktgd,ksd->ktgs", q_KTGD.double(), k_KSD.double()) / math.sqrt(q_KTGD.shape[-1])
    if causal:
        hidden = torch.ones(q_KTGD.shape[1], k_KSD.shape[1]).triu(1).bool()
        scores.masked_fill_(hidden[None, :, None], -math.inf)
    out = torch.einsum("ktgs,ksd->ktgd", scores.softmax(-1), v_KSD.double())
    return out.float(), scores.logsumexp(-1).float()


@pytest.mark.parametrize("attend_pass", PASSES)
@pytest.mark.parametrize(("kv_heads", "group", "head_dim"), [(3, 3, 64), (2, 7, 64), (1, 1, 2), (4, 1, 80)])
@pytest.mark.parametrize("rows", [1, 2, 33])
def test_a_pass_is_softmax_attention(
    attend_pass: AttentionPass, kv_heads: int, group: int, head_dim: int, rows: int
) -> None:
    q_KTGD = random(rows, kv_heads, group, head_dim).transpose(0, 1)
    for slots, causal in ((1, False), (200, False), (rows, True)):
        k_KSD, v_KSD = random(2, kv_heads, slots, head_dim, seed=1)
        expected = written_out(q_KTGD, k_KSD, v_KSD, causal=causal)
        torch.testing.assert_close(attend_pass(q_KTGD, k_KSD, v_KSD, causal), expected, atol=1e-5, rtol=1e-5)


def test_rows_in_blocks_give_what_they_give_together(monkeypatch: pytest.MonkeyPatch) -> None:
    q_KTGD, (k_KSD, v_KSD) = random(2, 11, 3, 8), random(2, 2, 11, 8)
    for block_rows in (1, 4, 11):
        monkeypatch.setattr(attention, "SCORES_BYTES", block_rows * 2 * 3 * 11 * 4)
        for causal in (False, True):
            expected = written_out(q_KTGD, k_KSD, v_KSD, causal=causal)
            torch.testing.assert_close(plain_pass(q_KTGD, k_KSD, v_KSD, causal), expected)


@pytest.mark.parametrize("attend_pass", PASSES)
def test_scattered_runs_merge_to_one_pass_and_other_slots_are_never_read(attend_pass: AttentionPass) -> None:
    """Two sequences; every slot that is neither's holds NaN."""
    spans = (_span(1, 5, 8, [9, 3, 6, 0]), _span(2, 13, 1, [5, 7, 8, 1]))
    step = Step.of(spans, 4, CPU)
    both_2KSD = torch.full((2, 2, 44, 16), math.nan)
    pool = LayerPool(both_2KSD)
    contents = [random(2, 2, 14, 16, seed=span.sequence) for span in spans]
    for span, content in zip(spans, contents, strict=True):
        before = Step.of((_span(span.sequence, 0, 14, [run.first for run in span.pages]),), 4, CPU)
        end = span.start + span.count
        pool.write(before.slots_T[:end], content.permute(2, 0, 1, 3)[:end])
    q_TKGD = random(9, 2, 3, 16, seed=3)
    out_TKGD = attend(attend_pass, q_TKGD, pool, step)
    for span, content, reads in zip(spans, contents, step.spans, strict=True):
        for row in range(span.count):
            k_KSD, v_KSD = content[:, :, : span.start + row + 1]
            q_K1GD = q_TKGD[reads.rows][row][:, None]
            expected = written_out(q_K1GD, k_KSD, v_KSD, causal=False)[0][:, 0]
            torch.testing.assert_close(out_TKGD[reads.rows][row], expected, atol=1e-5, rtol=1e-5)


def test_a_run_of_the_pool_is_a_view() -> None:
    pool = LayerPool(torch.zeros(2, 2, 44, 16))
    keys_KSD, values_KSD = pool.run(8, 12)
    pool.write(torch.tensor([8]), torch.ones(1, 2, 2, 16))
    assert keys_KSD[:, 0].eq(1).all()
    assert values_KSD[:, 0].eq(1).all()
    assert keys_KSD[:, 1:].eq(0).all()


def _span(sequence: int, start: int, count: int, pages: list[int]) -> Span:
    runs = tuple(PageRun(first=page, count=1) for page in pages)
    return Span(sequence=sequence, start=start, count=count, pages=runs)
