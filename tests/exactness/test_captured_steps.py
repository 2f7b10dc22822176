"""Steps that are captured once and replayed give what they give without, whoever comes and goes.

Here what is captured is done again on the same memory, as a CUDA graph does it: whatever a step needs that was not put
there is what another step left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerline.models.spec import AttentionSpec
from node.model import torch_computation
from node.model.attention.passes import PlainPass
from node.model.attention.row_pages import RowPages
from node.model.captured_steps import Capture, Work, capture_on
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import Rows, StageChain, StoredModel, logits_of, pages_of

TOKENS = [[int(token) for token in np.random.default_rng(seed).integers(3, 260, 30)] for seed in range(3)]
PAGES = [pages_of(ids) for ids in ([5, 0, 9, 2, 30, 11, 4, 40], [1, 3, 7, 8, 20, 21, 22, 23], [12, 13, 50, 51, 52, 6])]
STEPS = [(0,), (0,), (0, 1), (0, 1, 2), (0, 1, 2), (1, 2), (2,), (1, 2), (0, 1, 2), (2, 0), (0,), (0, 2, 1)] * 2
"""Which sequences have a row in each step."""


def rows_one_by_one(
    spec: AttentionSpec, q_TKGD: Tensor, k_KSD: Tensor, v_KSE: Tensor, sinks_KG: Tensor | None, pages: RowPages
) -> Tensor:
    """What the kernel does, by the same tables."""
    made = []
    for row, end in enumerate(pages.end_positions_T.tolist()):
        places = torch.arange(end - int(pages.first_positions_T[row]))
        pages_S = pages.pages_TP[row, places // pages.page_tokens].long()
        slots = pages_S * pages.page_tokens + places % pages.page_tokens
        k_1KSD, v_1KSE = k_KSD[None, :, slots], v_KSE[None, :, slots]
        made.append(PlainPass(spec.score_scale, 0.0)(q_TKGD[row : row + 1], k_1KSD, v_1KSE, False)[0])
    return torch.cat(made)


class Repeating:
    """A `Capture` that does the work again, and counts what it captured."""

    def __init__(self) -> None:
        self.captured = 0
        self.replayed = 0

    def __call__(self, work: Work) -> Work:
        self.captured += 1
        work()

        def replay() -> None:
            self.replayed += 1
            work()

        return replay


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("captured"), TinyModel(layers=4))


def logits(chain: StageChain, steps: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
    """After a prompt of 6 tokens of each sequence, a row of each that a step names."""
    done = [6, 6, 6]
    for sequence, tokens in enumerate(TOKENS):
        chain.step(Rows(token_ids=tokens[:6], pages=PAGES[sequence], sequence=sequence))
    found = []
    for step in steps:
        rows = [
            Rows(token_ids=TOKENS[each][done[each] :][:1], start=done[each], pages=PAGES[each], sequence=each)
            for each in step
        ]
        found += [logits_of(token) for token in chain.step(*rows)]
        for each in step:
            done[each] += 1
    return found


@pytest.mark.parametrize("stages", [1, 2])
def test_replayed_steps_give_what_they_give_without(
    model: StoredModel, stages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = logits(model.chain(stages), STEPS)
    made: list[Repeating] = []

    def repeating(device: torch.device) -> Capture:
        made.append(Repeating())
        return made[-1]

    monkeypatch.setattr(torch_computation, "row_attention_on", lambda device: rows_one_by_one)
    monkeypatch.setattr(torch_computation, "capture_on", repeating)
    found = logits(model.chain(stages), STEPS)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other)
    assert [(each.captured, each.replayed) for each in made] == [(3, len(STEPS))] * stages


def test_more_rows_than_are_few_are_not_captured(model: StoredModel, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = Repeating()
    monkeypatch.setattr(torch_computation, "row_attention_on", lambda device: rows_one_by_one)
    monkeypatch.setattr(torch_computation, "capture_on", lambda device: capture)
    chain = model.chain(1)
    for count in (17, 16):
        chain.step(*(Rows(token_ids=[7], pages=pages_of([row]), sequence=row) for row in range(count)))
        assert capture.captured == (count == 16)


def test_where_capturing_fails_steps_are_computed_all_the_same(
    model: StoredModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def failing(work: Work) -> Work:
        tried.append(work)
        work()
        raise RuntimeError("operation not permitted when stream is capturing")

    expected = logits(model.chain(1), STEPS[:4])
    monkeypatch.setattr(torch_computation, "row_attention_on", lambda device: rows_one_by_one)
    monkeypatch.setattr(torch_computation, "capture_on", lambda device: failing)
    for one, other in zip(logits(model.chain(1), STEPS[:4]), expected, strict=True):
        assert_close(one, other)
    assert len(tried) == 1
    assert "cannot be captured here" in caplog.text


def test_a_cpu_captures_nothing() -> None:
    assert capture_on(torch.device("cpu")) is None
