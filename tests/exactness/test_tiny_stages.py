"""However a tiny model is cut into stages and its tokens into steps, the logits are those of `transformers`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from layerline.frames import Frame, PageRun, Sampling
from tests.fakes.cases import cases
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.tiny_models import (
    PAGE_TOKENS,
    Rows,
    StageChain,
    StoredModel,
    chunks,
    frame_of,
    logits_of,
    pages_in_order,
    pages_of,
    reference_greedy,
    reference_logits,
)

SLOW = pytest.mark.slow

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
WIDE: dict[str, Any] = {"layers": 4, "hidden": 72, "heads": 9, "kv_heads": 3, "head_dim": 12}
MODELS = {
    "llama": (TinyModel(layers=4), {}),
    "llama untied, 9 heads of 3, wider than hidden": (TinyModel(**WIDE, tied_output=False), {}),
    "llama3 rope": (TinyModel(layers=4), {"rope_parameters": LLAMA3_ROPE, "rope_theta": None}),
    "linear rope": (TinyModel(layers=4), {"rope_parameters": LINEAR_ROPE, "rope_theta": None}),
    "qwen2": (TinyModel(family="qwen2", **WIDE), {}),
    "qwen2 untied": (TinyModel(family="qwen2", layers=4, tied_output=False), {}),
}
TOKENS = [int(token) for token in np.random.default_rng(7).integers(3, 260, 32)]
PROMPT = TOKENS[:11]


class Case:
    """A model's files and what the whole model says of TOKENS."""

    def __init__(self, folder: Path, name: str) -> None:
        self.tiny, config = MODELS[name]
        self.model = StoredModel.written(folder, self.tiny, config)
        reference = self.model.reference()
        self.expected = reference_logits(reference, TOKENS)
        self.greedy = reference_greedy(reference, PROMPT, 8)


@pytest.fixture(scope="session")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[Case]:
    @functools.cache
    def case(name: str) -> Case:
        return Case(tmp_path_factory.mktemp("tiny"), name)

    return functools.partial(case)


@pytest.fixture(params=cases(MODELS, more=["llama untied, 9 heads of 3, wider than hidden", "qwen2 untied"]))
def case(request: pytest.FixtureRequest, case_of: functools.partial[Case]) -> Case:
    return case_of(request.param)


def stage_counts(case: Case) -> list[int]:
    return [1, 3, case.tiny.layers]


def test_every_chunk_size_through_every_number_of_stages(case: Case) -> None:
    for stages in stage_counts(case):
        chain = case.model.chain(stages)
        for size in range(1, len(PROMPT) + 1):
            for start, token_ids in chunks(PROMPT, size):
                (drawn,) = chain.step(Rows(token_ids=token_ids, start=start))
                expected = case.expected[start + len(token_ids) - 1]
                assert_close(logits_of(drawn), expected)


def test_greedy_answers_are_those_of_generate(case: Case) -> None:
    for stages in stage_counts(case):
        assert case.model.chain(stages).greedy(PROMPT, 8) == case.greedy


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW)])
def test_sequences_in_one_batch_on_scattered_pages(case: Case, seed: int) -> None:
    """Each step takes some of the sequences, each with a chunk of any size; their pages lie anywhere."""
    random = np.random.default_rng(seed)
    chain = case.model.chain(2)
    free_pages = [int(page) for page in random.permutation(64)]
    done = [0] * 4
    pages: list[list[int]] = [[] for _ in range(4)]
    while any(count < len(TOKENS) for count in done):
        rows = []
        for sequence in random.permutation(4)[: random.integers(1, 5)]:
            start = done[sequence]
            end = min(len(TOKENS), start + int(random.choice([1, 2, 3, 7, 15])))
            while len(pages[sequence]) * PAGE_TOKENS < end:
                pages[sequence].append(free_pages.pop())
            if end > start:
                page_runs = pages_of(pages[sequence])
                rows.append(Rows(token_ids=TOKENS[start:end], start=start, pages=page_runs, sequence=int(sequence)))
                done[sequence] = end
        for row, drawn in zip(rows, chain.step(*rows) if rows else [], strict=True):
            assert drawn.sequence == row.sequence
            expected = case.expected[row.start + len(row.token_ids) - 1]
            assert_close(logits_of(drawn), expected)


def test_several_tokens_are_drawn_of_one_span_each_as_if_it_were_the_only_one(case: Case) -> None:
    sampling = Sampling(temperature=1.0, seed=3, return_logits=True)
    for stages in stage_counts(case):
        chain, other = case.model.chain(stages), case.model.chain(stages)
        alone = [
            chain.step(Rows(token_ids=[token_id], start=start, sampling=sampling))[0]
            for start, token_id in enumerate(PROMPT)
        ]
        silent = Rows(token_ids=PROMPT[:4], pages=pages_of([0, 1]), sequence=2, sampling=None)
        several = Rows(token_ids=PROMPT, pages=pages_of([60, 61, 62]), draws=5, sampling=sampling)
        drawn = other.step(silent, several)
        assert [(each.sequence, each.position, each.token_id) for each in drawn] == [
            (1, position, alone[position - 1].token_id) for position in range(len(PROMPT) - 4, len(PROMPT) + 1)
        ]
        for each in drawn:
            assert_close(logits_of(each), case.expected[each.position - 1])


def test_only_the_rows_asked_for_are_drawn(case_of: functools.partial[Case]) -> None:
    chain = case_of("llama").model.chain(2)
    silent = Rows(token_ids=PROMPT, pages=pages_of([0, 1, 2]), sequence=1, sampling=None)
    asked = Rows(token_ids=PROMPT, pages=pages_of([3, 4, 5]), sequence=2)
    plain = Rows(token_ids=PROMPT, pages=pages_of([6, 7, 8]), sequence=3, sampling=Sampling())
    assert chain.step(silent) == []
    with_logits, without = chain.step(silent, asked, plain)
    assert (with_logits.sequence, without.sequence) == (2, 3)
    assert with_logits.token_id == without.token_id == int(logits_of(with_logits).argmax())
    assert without.logits is None


def test_pages_that_others_have_used_change_nothing(case_of: functools.partial[Case]) -> None:
    case = case_of("qwen2")
    chain = case.model.chain(2)
    chain.step(Rows(token_ids=TOKENS[::-1]))
    (drawn,) = chain.step(Rows(token_ids=PROMPT))
    assert_close(logits_of(drawn), case.expected[len(PROMPT) - 1])


def test_sequences_that_share_the_pages_of_a_prefix(case_of: functools.partial[Case]) -> None:
    """The first writes them; then all go on from there in one step, each on pages of its own."""
    case = case_of("qwen2")
    chain = case.model.chain(2)
    shared = [7, 2]
    chain.step(Rows(token_ids=TOKENS[:8], pages=pages_of(shared), sampling=None))
    lengths = {1: 9, 2: 11, 3: 12}
    rows = [
        Rows(token_ids=TOKENS[8:end], start=8, pages=pages_of([*shared, 20 + sequence]), sequence=sequence)
        for sequence, end in lengths.items()
    ]
    for drawn in chain.step(*rows):
        expected = case.expected[lengths[drawn.sequence] - 1]
        assert_close(logits_of(drawn), expected)


def test_page_sizes_and_spare_pages_change_nothing(case_of: functools.partial[Case]) -> None:
    case = case_of("llama")
    for page_tokens in (1, 3, 64):
        chain = case.model.chain(1, page_tokens=page_tokens)
        chain.step(Rows(token_ids=PROMPT[:5], pages=(PageRun(first=1, count=60),), sampling=None))
        (drawn,) = chain.step(Rows(token_ids=PROMPT[5:], start=5, pages=(PageRun(first=1, count=60),)))
        assert_close(logits_of(drawn), case.expected[len(PROMPT) - 1])


def test_more_sampled_rows_than_one_block_of_logits(case_of: functools.partial[Case]) -> None:
    case = case_of("llama")
    chain = case.model.chain(1, pages=90, max_rows=76)
    rows = [
        Rows(
            token_ids=TOKENS[:length],
            pages=(PageRun(first=3 * length, count=3),),
            sequence=length,
            sampling=Sampling(return_logits=True),
        )
        for length in (1, 2, 3)
    ]
    many = [
        Rows(token_ids=[token], pages=pages_of([page]), sequence=100 + page)
        for page, token in enumerate((TOKENS * 2)[:70], 20)
    ]
    drawn = chain.step(*rows, *many)
    assert [token.sequence for token in drawn] == [row.sequence for row in (*rows, *many)]
    for row, token in zip(rows, drawn, strict=False):
        expected = case.expected[len(row.token_ids) - 1]
        assert_close(logits_of(token), expected)
    for row, token in zip(many, drawn[3:], strict=True):
        alone = chain.step(Rows(token_ids=row.token_ids))
        assert_close(logits_of(token), logits_of(alone[0]))


def test_both_containers_give_the_same_logits(case_of: functools.partial[Case], tmp_path: Path) -> None:
    """GGUF has the rows of llama's queries and keys in another order, which must be undone."""
    for name in ("llama", "qwen2"):
        case = case_of(name)
        gguf = StoredModel.at(write_gguf(tmp_path / f"{name}.gguf", case.tiny))
        (from_gguf,) = gguf.chain(2).step(Rows(token_ids=PROMPT))
        (from_folder,) = case.model.chain(2).step(Rows(token_ids=PROMPT))
        np.testing.assert_array_equal(logits_of(from_gguf), logits_of(from_folder))


def test_cuts_do_not_change_a_bit_of_bfloat16(case_of: functools.partial[Case]) -> None:
    case = case_of("llama untied, 9 heads of 3, wider than hidden")

    def answers(chain: StageChain) -> list[bytes]:
        drawn = [chain.step(Rows(token_ids=ids, start=start))[0] for start, ids in chunks(PROMPT, 4)]
        return [logits_of(token).tobytes() for token in drawn]

    whole = answers(case.model.chain(1, dtype="bfloat16"))
    for stages in (2, 4):
        assert answers(case.model.chain(stages, dtype="bfloat16")) == whole


def test_bfloat16_is_as_near_to_float32_as_that_of_transformers(case: Case) -> None:
    reference = reference_logits(case.model.reference(torch.bfloat16), PROMPT)
    chain = case.model.chain(2, dtype="bfloat16")
    ours = [logits_of(chain.step(Rows(token_ids=[token], start=at))[0]) for at, token in enumerate(PROMPT)]
    exact = case.expected[: len(PROMPT)]
    assert np.linalg.norm(ours - exact) < 1.2 * np.linalg.norm(reference - exact)


def test_the_frame_between_stages_has_the_residual(case_of: functools.partial[Case]) -> None:
    model = case_of("llama3 rope").model
    product = model.stage(0, 1).run(frame_of(Rows(token_ids=PROMPT, pages=pages_in_order(11))))
    assert isinstance(product, Frame)
    assert product.tensor.dtype == "float32"
    assert product.tensor.shape == (11, 64)
