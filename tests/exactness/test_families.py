"""Every family, from either container, whole, in stages and over ranks: logits and greedy tokens of `transformers`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.fakes.cases import cases
from tests.fakes.family_traits import TRAITS
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import (
    BY_KERNELS,
    Rows,
    StageChain,
    StoredModel,
    chunks,
    logits_of,
    reference_greedy,
    reference_logits,
)

SLOW = pytest.mark.slow

TOKENS = [int(token) for token in np.random.default_rng(21).integers(3, 260, 24)]
PROMPT = TOKENS[:9]
SHAPES: dict[str, dict[str, Any]] = {
    "tied": {"head_dim": 24},
    "untied": {"tied_output": False, "heads": 6, "kv_heads": 3, "hidden": 48},
}


class Case:
    """A model in every container that has the family, and what the whole model says of TOKENS."""

    def __init__(self, folder: Path, family: str, shape: str) -> None:
        tiny = TinyModel(family=family, layers=4, **SHAPES[shape])
        self.stored = [StoredModel.written(folder / "folder", tiny)]
        reference = self.stored[0].reference()
        self.expected = reference_logits(reference, TOKENS)
        self.greedy = reference_greedy(reference, PROMPT, 8)
        if TRAITS[family].in_gguf:
            self.stored.append(StoredModel.at(write_gguf(folder / "model.gguf", tiny)))


def close(logits: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert_close(logits, expected)


@functools.cache
def case_in(folder: Path, family: str, shape: str) -> Case:
    return Case(folder / family / shape, family, shape)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


EVERY = [(family, shape) for family in TRAITS for shape in SHAPES]


@pytest.fixture(params=cases(EVERY, more=[case for case in EVERY if case[1] == "untied"]), ids="-".join)
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    family, shape = request.param
    return case_in(folder, family, shape)


def assert_exact(case: Case, chain: StageChain) -> None:
    """In one step, token by token, in chunks of random sizes, and on from a prompt."""
    random = np.random.default_rng(4)
    for size in (len(TOKENS), 1):
        for start, token_ids in chunks(TOKENS, size):
            (drawn,) = chain.step(Rows(token_ids=token_ids, start=start))
            close(logits_of(drawn), case.expected[start + len(token_ids) - 1])
    start = 0
    while start < len(TOKENS):
        end = min(len(TOKENS), start + int(random.integers(1, 12)))
        (drawn,) = chain.step(Rows(token_ids=TOKENS[start:end], start=start))
        close(logits_of(drawn), case.expected[end - 1])
        start = end
    assert chain.greedy(PROMPT, 8) == case.greedy


COMPUTED = pytest.mark.parametrize("computed", [{}, BY_KERNELS], ids=["torch", "kernels"])


@COMPUTED
@pytest.mark.parametrize("stages", [pytest.param(1, marks=SLOW), 2])
def test_stages(case: Case, stages: int, computed: dict[str, Any]) -> None:
    for stored in case.stored:
        assert_exact(case, stored.chain(stages, **computed))


@pytest.mark.more
@COMPUTED
@pytest.mark.parametrize("degrees", [pytest.param((2,), marks=SLOW), (3, 2)], ids=str)
def test_ranks(case: Case, degrees: tuple[int, ...], computed: dict[str, Any]) -> None:
    for stored in case.stored:
        with ranked_chain(stored, degrees, **computed) as chain:
            assert_exact(case, chain)


def test_both_containers_have_one_spec(case: Case) -> None:
    assert len({stored.card.spec for stored in case.stored}) == 1
