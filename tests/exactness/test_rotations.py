"""Models with every kind of rotary scaling give what `transformers` gives, also past the original context."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fakes.cases import cases
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel, stored_name, write_folder, write_gguf
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

TOKENS = [int(token) for token in np.random.default_rng(17).integers(3, 260, 48)]
ORIGINAL = 16
PROMPT = TOKENS[:24]  # longer than the original context, so that the reference never changes its frequencies
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": ORIGINAL}
SHORT, LONG = [1.0, 1.1, 1.3, 1.8, 2.1, 2.5], [1.0, 2.0, 4.0, 9.0, 17.0, 40.0]
LONGROPE = {
    "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
    "original_max_position_embeddings": ORIGINAL,
    "partial_rotary_factor": 0.75,
}
WHOLE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [*LONG, 50.0, 60.0], "factor": 4.0}
PHI4 = TinyModel(family="phi3", layers=4)
MODELS: dict[str, tuple[TinyModel, dict[str, Any]]] = {
    "yarn": (TinyModel(layers=4), {"rope_parameters": YARN}),
    "yarn with qk norm and scales": (
        TinyModel(family="qwen3", layers=4),
        {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5, "truncate": False}},
    ),
    "dynamic": (TinyModel(layers=4, context_tokens=len(TOKENS)), {"rope_scaling": {"type": "dynamic", "factor": 4.0}}),
    "longrope of a part": (PHI4, LONGROPE),
    "longrope": (PHI4, {**LONGROPE, "rope_scaling": WHOLE, "partial_rotary_factor": 1.0}),
    "a part": (PHI4, {"partial_rotary_factor": 0.5}),
}
METADATA: dict[str, dict[str, object]] = {
    "yarn": {
        "llama.rope.scaling.type": "yarn",
        "llama.rope.scaling.factor": 8.0,
        "llama.rope.scaling.original_context_length": ORIGINAL,
    },
    "longrope of a part": {
        "phi3.rope.dimension_count": 12,
        "phi3.rope.scaling.original_context_length": ORIGINAL,
        "phi3.rope.scaling.attn_factor": (1 + np.log(256 / ORIGINAL) / np.log(ORIGINAL)) ** 0.5,
    },
    "a part": {"phi3.rope.dimension_count": 8},
}
FACTORS = {
    "rope_factors_short.weight": np.array(SHORT, np.float32),
    "rope_factors_long.weight": np.array(LONG, np.float32),
}
COMPUTED = pytest.mark.parametrize("computed", [{}, BY_KERNELS], ids=["torch", "kernels"])


class Case:
    """A model in every container that can say it, and what the whole model says of TOKENS."""

    def __init__(self, folder: Path, name: str) -> None:
        tiny, config = MODELS[name]
        self.stored = [StoredModel.written(folder / "folder", tiny, config)]
        reference = self.stored[0].reference()
        self.expected = reference_logits(reference, TOKENS)
        self.expected_short = reference_logits(reference, TOKENS[:ORIGINAL])
        self.greedy = reference_greedy(reference, PROMPT, 8)
        if name in METADATA:
            tensors = FACTORS if name.startswith("longrope") else {}
            path = write_gguf(folder / "model.gguf", tiny, metadata=METADATA[name], tensors=tensors)
            self.stored.append(StoredModel.at(path))
        self.is_long = self.stored[0].card.spec.is_long(len(TOKENS))


@functools.cache
def case_in(folder: Path, name: str) -> Case:
    return Case(folder / name, name)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rotations")


@pytest.fixture(params=cases(MODELS, more=["longrope", "a part"]))
def case(request: pytest.FixtureRequest, folder: Path) -> Case:
    return case_in(folder, request.param)


def assert_exact(chain: StageChain, case: Case) -> None:
    """In one step, token by token and in chunks across the original context, and on from a prompt."""
    for size in (len(TOKENS), 1, 7):
        for start, token_ids in chunks(TOKENS, size):
            (drawn,) = chain.step(Rows(token_ids=token_ids, start=start))
            assert_close(logits_of(drawn), case.expected[start + len(token_ids) - 1])
    assert chain.greedy(PROMPT, 8) == case.greedy


@COMPUTED
def test_past_the_original_context(case: Case, computed: dict[str, Any]) -> None:
    for stored in case.stored:
        assert_exact(stored.chain(2, long_context=case.is_long, **computed), case)


@pytest.mark.more
@COMPUTED
def test_over_ranks(case: Case, computed: dict[str, Any]) -> None:
    for stored in case.stored:
        with ranked_chain(stored, (2, 1), long_context=case.is_long, **computed) as chain:
            assert_exact(chain, case)


@COMPUTED
def test_within_the_original_context(folder: Path, computed: dict[str, Any]) -> None:
    case = case_in(folder, "longrope of a part")
    for stored in case.stored:
        for start, token_ids in chunks(TOKENS[:ORIGINAL], 5):
            chain = stored.chain(2, **computed)
            (drawn,) = chain.step(Rows(token_ids=TOKENS[: start + len(token_ids)]))
            assert_close(logits_of(drawn), case.expected_short[start + len(token_ids) - 1])
    with pytest.raises(AssertionError):
        assert_close(logits_of(drawn), case.expected[ORIGINAL - 1])


def test_both_containers_have_one_spec(case: Case) -> None:
    assert len({stored.card.spec for stored in case.stored}) == 1


def neighbours(rows: np.ndarray[Any, np.dtype[np.float32]], heads: int, rotated: int) -> Any:
    """The rows of heads whose first `rotated` are in halves, pair by pair."""
    by_head = rows.reshape(heads, -1, *rows.shape[1:])
    pairs = by_head[:, :rotated].reshape(heads, 2, rotated // 2, *rows.shape[1:]).swapaxes(1, 2)
    return np.concatenate([pairs.reshape(heads, rotated, *rows.shape[1:]), by_head[:, rotated:]], 1).reshape(rows.shape)


@pytest.mark.parametrize("rotated", [16, 8])
def test_pairs_that_are_neighbours_in_the_file(tmp_path: Path, rotated: int) -> None:
    tiny = TinyModel()
    rows = {stored_name(name, "safetensors"): numbers for name, numbers in tiny.weights().items()}
    paired = {
        name: neighbours(numbers, tiny.heads if ".q_proj" in name else tiny.kv_heads, rotated)
        for name, numbers in rows.items()
        if ".q_proj" in name or ".k_proj" in name
    }
    halves = with_rope(StoredModel.written(tmp_path / "halves", tiny), rotated=rotated)
    folder = write_folder(tmp_path / "pairs", tiny, tensors=paired)
    pairs = with_rope(StoredModel.at(folder), rotated=rotated, interleaved=True)
    unpaired = with_rope(StoredModel.at(folder), rotated=rotated)
    for computed in ({}, BY_KERNELS):
        (wanted, found, wrong) = (
            logits_of(model.chain(1, **computed).step(Rows(token_ids=PROMPT))[0]) for model in (halves, pairs, unpaired)
        )
        np.testing.assert_array_equal(found, wanted)
        assert not np.allclose(wrong, wanted, atol=0.01)


def with_rope(model: StoredModel, **changes: Any) -> StoredModel:
    """The same with another rotation in every layer."""
    spec = model.card.spec
    (kind,) = spec.kinds
    assert kind.attention.rope is not None
    attention = replace(kind.attention, rope=replace(kind.attention.rope, **changes))
    other = replace(spec, kinds=(replace(kind, mixer=attention),))
    return replace(model, card=replace(model.card, spec=other))
