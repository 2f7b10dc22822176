"""Layers with a sliding window give what `transformers` gives, also where pages behind the window hold other things."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.frames import PageRun
from layerline.models.kv_sizes import most_sequence_pages
from tests.fakes.cases import cases
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import (
    PAGE_TOKENS,
    Rows,
    StageChain,
    StoredModel,
    chunks,
    logits_of,
    pages_of,
    reference_greedy,
    reference_logits,
)

WINDOW = 7
TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 260, 60)]
QWEN2: dict[str, object] = {"use_sliding_window": True, "sliding_window": WINDOW}
MODELS: dict[str, tuple[TinyModel, dict[str, object]]] = {
    "mistral": (TinyModel(family="mistral", layers=4), {"sliding_window": WINDOW}),
    "phi3": (TinyModel(family="phi3", layers=4), {"sliding_window": WINDOW}),
    "mistral without": (TinyModel(family="mistral", layers=4), {"sliding_window": None}),
    "qwen2 from layer 2": (TinyModel(family="qwen2", layers=4), {**QWEN2, "max_window_layers": 2}),
    "qwen2 everywhere": (TinyModel(family="qwen2", layers=4), {**QWEN2, "max_window_layers": 0}),
}
EVERYWHERE = [name for name in MODELS if name in ("mistral", "qwen2 everywhere")]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("windows")


@pytest.fixture(params=cases(MODELS, more=["phi3", "mistral without", "qwen2 everywhere"]))
def model(request: pytest.FixtureRequest, folder: Path) -> StoredModel:
    return written(folder, request.param)


@pytest.fixture(params=cases(EVERYWHERE, more=["qwen2 everywhere"]))
def windowed(request: pytest.FixtureRequest, folder: Path) -> StoredModel:
    return written(folder, request.param)


def written(folder: Path, name: str) -> StoredModel:
    tiny, config = MODELS[name]
    return StoredModel.written(folder / name, tiny, config)


def close(logits: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert_close(logits, expected)


def test_every_chunk_size_through_every_number_of_stages(model: StoredModel) -> None:
    tokens = TOKENS[:26]
    expected = reference_logits(model.reference(), tokens)
    for stages in (1, 4):
        chain = model.chain(stages)
        for size in (1, 2, 3, 5, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 1, 26):
            for start, token_ids in chunks(tokens, size):
                (drawn,) = chain.step(Rows(token_ids=token_ids, start=start))
                close(logits_of(drawn), expected[start + len(token_ids) - 1])


def test_greedy_answers_are_those_of_generate(model: StoredModel) -> None:
    expected = reference_greedy(model.reference(), TOKENS[:11], 12)
    for stages in (1, 3):
        assert model.chain(stages).greedy(TOKENS[:11], 12) == expected


def test_pages_behind_the_window_may_be_used_again(windowed: StoredModel) -> None:
    """Two sequences turn round in as few pages as a sequence can do with; a third has a page for every position."""
    most_rows = 5
    ring = most_sequence_pages(WINDOW, len(TOKENS), most_rows, PAGE_TOKENS)
    assert ring * PAGE_TOKENS < len(TOKENS) / 2
    chain = windowed.chain(2, max_rows=3 * most_rows)
    straight, start, random = 40, 0, np.random.default_rng(1)
    while start < len(TOKENS):
        end = min(len(TOKENS), start + int(random.integers(1, most_rows + 1)))
        skipped, end_page = max(0, start - WINDOW + 1) // PAGE_TOKENS, -(-end // PAGE_TOKENS)
        turning = [pages_of([first + place % ring for place in range(skipped, end_page)]) for first in (0, ring)]
        rows = [
            Rows(token_ids=TOKENS[start:end], start=start, pages=pages, skipped_pages=skipped, sequence=number)
            for number, pages in enumerate(turning)
        ]
        whole = Rows(token_ids=TOKENS[start:end], start=start, pages=(PageRun(first=straight, count=end_page),))
        one, other, alone = map(logits_of, chain.step(*rows, replace(whole, sequence=2)))
        close(one, alone)
        close(other, alone)
        start = end
    close(alone, reference_logits(windowed.reference(), TOKENS)[-1])


def test_a_shared_prefix_behind_the_window_need_not_be_there(windowed: StoredModel) -> None:
    """A sequence whose pages behind its window another one is writing gets the same answer."""
    chain: StageChain = windowed.chain(1)
    for start, token_ids in chunks(TOKENS[:24], 6):
        chain.step(Rows(token_ids=token_ids, start=start, pages=pages_of(range(6)), sampling=None))
    other = Rows(token_ids=TOKENS[:4], pages=pages_of([0]), sequence=2)
    drawn, _ = chain.step(Rows(token_ids=TOKENS[24:25], start=24, pages=pages_of([4, 5, 9]), skipped_pages=4), other)
    close(logits_of(drawn), reference_logits(windowed.reference(), TOKENS[:25])[-1])
