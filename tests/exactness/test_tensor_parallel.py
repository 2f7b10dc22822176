"""However stages are split over ranks, and a model over stages, logits and tokens are those of `transformers`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from layerline.frames import Frame, Sampling
from tests.fakes.cases import cases
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel
from tests.fakes.ranked_stages import ranked_chain, ranks_of, together
from tests.fakes.tiny_models import (
    PAGE_TOKENS,
    Rows,
    StageChain,
    StoredModel,
    chunks,
    frame_of,
    logits_of,
    pages_of,
    reference_greedy,
    reference_logits,
)

SLOW = pytest.mark.slow

TOKENS = [int(token) for token in np.random.default_rng(11).integers(3, 260, 22)]
PROMPT = TOKENS[:11]
ODD: dict[str, Any] = {"layers": 4, "spare_ids": 1}  # 265 token ids, which 2, 3 and 4 do not divide
MODELS = {
    "9 heads in 3 groups": TinyModel(**ODD, hidden=72, heads=9, kv_heads=3, head_dim=12),
    "14 heads in 2 groups": TinyModel(**ODD, family="qwen2", heads=14, kv_heads=2, head_dim=4, tied_output=False),
    "4 heads in 1 group": TinyModel(**ODD, heads=4, kv_heads=1, intermediate=100),
}
DEGREES = [
    *cases([(2,), (3,), (4, 2)], more=[(2,)]),
    *(pytest.param(degrees, marks=SLOW) for degrees in ((1,), (4,), (2, 1), (1, 3))),
]


class Case:
    """A model's files and what the whole model says of TOKENS and after PROMPT."""

    def __init__(self, folder: Path, name: str) -> None:
        self.model = StoredModel.written(folder, MODELS[name])
        reference = self.model.reference()
        self.expected = reference_logits(reference, TOKENS)
        self.greedy = reference_greedy(reference, PROMPT, 6)


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[Case]:
    @functools.cache
    def case(name: str) -> Case:
        return Case(tmp_path_factory.mktemp("split"), name)

    return functools.partial(case)


@pytest.fixture(params=cases(MODELS, more=["4 heads in 1 group"]))
def case(request: pytest.FixtureRequest, case_of: functools.partial[Case]) -> Case:
    return case_of(request.param)


def all_close(case: Case, row: Rows, logits: np.ndarray) -> None:
    expected = case.expected[row.start + len(row.token_ids) - 1]
    assert_close(logits, expected)


@pytest.mark.parametrize("degrees", DEGREES, ids=str)
def test_logits_and_greedy_tokens_of_every_split(case: Case, degrees: tuple[int, ...]) -> None:
    with ranked_chain(case.model, degrees) as chain:
        for size in (1, 4, len(PROMPT)):
            for start, token_ids in chunks(PROMPT, size):
                row = Rows(token_ids=token_ids, start=start)
                (drawn,) = chain.step(row)
                all_close(case, row, logits_of(drawn))
        assert chain.greedy(PROMPT, 6) == case.greedy


@pytest.mark.parametrize("proportions", [(3, 1), (1, 5, 2)], ids=str)
def test_unequal_shares(case: Case, proportions: tuple[int, ...]) -> None:
    with ranked_chain(case.model, [len(proportions)], proportions=proportions) as chain:
        row = Rows(token_ids=PROMPT)
        (drawn,) = chain.step(row)
        all_close(case, row, logits_of(drawn))
        assert chain.greedy(PROMPT, 6) == case.greedy


def test_sequences_in_one_batch_on_scattered_pages(case: Case) -> None:
    """Each step takes some of the sequences, a chunk of any size of each; some want logits, some only a token."""
    random = np.random.default_rng(2)
    free_pages = [int(page) for page in random.permutation(64)]
    done = [0] * 4
    pages: list[list[int]] = [[] for _ in range(4)]
    with ranked_chain(case.model, [3, 2]) as chain:
        while any(count < len(TOKENS) for count in done):
            rows = []
            for sequence in random.permutation(4)[: random.integers(1, 5)]:
                start = done[sequence]
                end = min(len(TOKENS), start + int(random.choice([1, 2, 3, 7, 15])))
                while len(pages[sequence]) * PAGE_TOKENS < end:
                    pages[sequence].append(free_pages.pop())
                if end > start:
                    sampling = Sampling(return_logits=bool(random.integers(2)))
                    own = pages_of(pages[sequence])
                    ids = TOKENS[start:end]
                    rows.append(Rows(token_ids=ids, start=start, pages=own, sequence=int(sequence), sampling=sampling))
                    done[sequence] = end
            for row, drawn in zip(rows, chain.step(*rows) if rows else [], strict=True):
                assert drawn.sequence == row.sequence
                assert drawn.token_id == case.expected[row.start + len(row.token_ids) - 1].argmax()
                if row.sampling is not None and row.sampling.return_logits:
                    all_close(case, row, logits_of(drawn))


SAMPLINGS = [
    Sampling(temperature=1.0, seed=1),
    Sampling(temperature=0.7, top_k=20, seed=2),
    Sampling(temperature=1.3, top_p=0.8, min_p=0.01, seed=3),
    Sampling(temperature=1.0, repetition_penalty=1.3, prompt_ids=tuple(PROMPT), seed=4),
    Sampling(repetition_penalty=1.5, prompt_ids=tuple(range(0, 260, 2))),
    Sampling(),
]


def drawn_tokens(chain: StageChain) -> list[int]:
    """What is drawn after each prefix of PROMPT, in every way at once."""
    tokens = []
    for count in range(1, len(PROMPT)):
        rows = [
            Rows(token_ids=PROMPT[:count], pages=pages_of(range(4 * way, 4 * way + 4)), sequence=way, sampling=sampling)
            for way, sampling in enumerate(SAMPLINGS)
        ]
        tokens += [drawn.token_id for drawn in chain.step(*rows)]
    return tokens


def test_seeded_sampling_draws_what_the_unsplit_stage_draws(case: Case) -> None:
    whole = drawn_tokens(case.model.chain(1, max_rows=128))
    for degrees in ([2], [1, 3]):
        with ranked_chain(case.model, degrees, max_rows=128) as chain:
            assert drawn_tokens(chain) == whole


def test_more_sampled_rows_than_one_block_of_logits(case_of: functools.partial[Case]) -> None:
    case = case_of("9 heads in 3 groups")
    many = [
        Rows(token_ids=[token], pages=pages_of([page]), sequence=page, sampling=Sampling(return_logits=page % 3 == 0))
        for page, token in enumerate((TOKENS * 3)[:70])
    ]
    changes: dict[str, Any] = {"pages": 80, "max_rows": 80}
    alone = {drawn.sequence: drawn.token_id for drawn in case.model.chain(1, **changes).step(*many)}
    with ranked_chain(case.model, [2], **changes) as chain:
        assert {drawn.sequence: drawn.token_id for drawn in chain.step(*many)} == alone


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_rank_has_the_same_residual_to_the_bit(case: Case, dtype: str) -> None:
    ranks = ranks_of(case.model, 3, 0, 1, dtype=dtype)
    frame = frame_of(Rows(token_ids=PROMPT))
    first, *others = together([functools.partial(rank.run, frame) for rank in ranks])
    assert isinstance(first, Frame)
    assert others == [first, first]


def test_bfloat16_is_as_near_to_float32_as_that_of_transformers(case: Case) -> None:
    reference = reference_logits(case.model.reference(torch.bfloat16), PROMPT)
    exact = case.expected[: len(PROMPT)]
    with ranked_chain(case.model, [2], dtype="bfloat16") as chain:
        ours = [logits_of(chain.step(Rows(token_ids=[token], start=at))[0]) for at, token in enumerate(PROMPT)]
    assert np.linalg.norm(ours - exact) < 1.2 * np.linalg.norm(reference - exact)
