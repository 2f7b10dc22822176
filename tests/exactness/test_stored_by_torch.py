"""Torch over weights as they are stored gives what it gives over the same weights in float32, in every form."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.models.held import EIGHT_BITS, FLOATS, INTEGERS
from node.load_stage import load_stage
from node.model.linear import stored as stored_linear
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import BY_KERNELS, PAGE_TOKENS, Rows, StageChain, StoredModel, chunks, logits_of, pages_of

MODEL = TinyModel(hidden=256, intermediate=512, heads=4, kv_heads=2, head_dim=64, layers=2)
UNTIED = TinyModel(
    family="qwen2", hidden=256, intermediate=768, heads=4, kv_heads=2, head_dim=64, layers=2, tied_output=False
)
TOKENS = [int(token) for token in np.random.default_rng(5).integers(3, 260, 20)]
STORED = {"weights": "stored"}


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> functools.partial[StoredModel]:
    @functools.cache
    def written(storage: str, *, untied: bool = False) -> StoredModel:
        path = tmp_path_factory.mktemp("stored") / "tiny.gguf"
        return StoredModel.at(write_gguf(path, UNTIED if untied else MODEL, storage=storage))

    return functools.partial(written)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that every matrix takes several, the last of them not whole."""
    monkeypatch.setattr(stored_linear, "TILE_NUMBERS", 256 * 100)


@contextmanager
def chain_of(model: StoredModel, degrees: Sequence[int], **changes: Any) -> Iterator[StageChain]:
    with ranked_chain(model, degrees, **changes) as chain:
        yield chain


def logits(chain: StageChain, size: int) -> NDArray[np.float32]:
    """Of all TOKENS, in chunks of so many."""
    found = []
    pages = pages_of(range(-(-len(TOKENS) // PAGE_TOKENS)))
    for start, tokens in chunks(TOKENS, size):
        found += chain.step(Rows(token_ids=tokens, start=start, pages=pages, draws=len(tokens)))
    return np.stack([logits_of(token) for token in found])


def plain_logits(model: StoredModel) -> NDArray[np.float32]:
    with chain_of(model, (1,), weights="float32") as chain:
        return logits(chain, len(TOKENS))


@pytest.mark.parametrize("storage", [*INTEGERS, *FLOATS, *sorted(EIGHT_BITS)])
def test_logits_are_those_of_the_unpacked_model(model_of: functools.partial[StoredModel], storage: str) -> None:
    model = model_of(storage)
    with chain_of(model, (1, 1), **STORED) as chain:
        assert_close(logits(chain, 7), plain_logits(model))


@pytest.mark.parametrize("degrees", [(2,), (1, 2)])
@pytest.mark.parametrize("storage", ["Q8_0", "Q4_K", "MXFP4", "IQ3_S"])
def test_ranks_hold_what_is_on_blocks_as_stored_and_the_rest_in_float32(
    model_of: functools.partial[StoredModel], storage: str, degrees: tuple[int, ...]
) -> None:
    model = model_of(storage, untied=True)
    with chain_of(model, degrees, **STORED) as chain:
        assert_close(logits(chain, 5), plain_logits(model))


@pytest.mark.parametrize("kernels_first", [True, False])
@pytest.mark.parametrize("storage", ["Q6_K", "IQ4_NL", *sorted(EIGHT_BITS)])
def test_a_stage_by_the_kernels_and_one_by_torch_are_one_model(
    model_of: functools.partial[StoredModel], storage: str, kernels_first: bool
) -> None:
    model, page_tokens = model_of(storage), BY_KERNELS["page_tokens"]
    ways = [BY_KERNELS, {**STORED, "page_tokens": page_tokens}]
    first, last = ways if kernels_first else reversed(ways)
    mixed = StageChain([model.stage(0, 0, **first), model.stage(1, 1, **last)])
    pages = pages_of(range(2))
    drawn = mixed.step(Rows(token_ids=TOKENS[:13], pages=pages, draws=13))
    drawn += mixed.step(Rows(token_ids=TOKENS[13:], start=13, pages=pages, draws=len(TOKENS) - 13))
    assert_close(np.stack([logits_of(token) for token in drawn]), plain_logits(model))


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_weights_that_are_rounded_are_those_that_the_kernels_round_to(
    model_of: functools.partial[StoredModel], weights: str
) -> None:
    model = model_of("F32", untied=True)
    with chain_of(model, (1,), weights=weights) as by_torch:
        found = logits(by_torch, 20)
    changes = {**BY_KERNELS, "weights": weights, "page_tokens": PAGE_TOKENS * 4}
    pages = pages_of(range(2))
    by_kernels = StageChain([model.stage(**changes)])
    drawn = by_kernels.step(Rows(token_ids=TOKENS, pages=pages, draws=len(TOKENS)))
    assert_close(found, np.stack([logits_of(token) for token in drawn]))


def test_in_bfloat16_the_numbers_are_those_of_a_matrix_held_in_it(model_of: functools.partial[StoredModel]) -> None:
    """Only the order of sums differs, so that they are as near as bfloat16 lets them be."""
    model = model_of("Q5_K")
    with (
        chain_of(model, (1,), dtype="bfloat16", **STORED) as stored,
        chain_of(model, (1,), dtype="bfloat16", weights="bfloat16") as plain,
    ):
        found, expected = logits(stored, 20), logits(plain, 20)
    assert np.linalg.norm(found - expected) < 2e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("storage", "share"), [("Q4_K", 0.30), ("IQ3_S", 0.61), ("BF16", 1.01), ("F32", 1.01)])
def test_what_is_counted_is_what_is_loaded(
    model_of: functools.partial[StoredModel], storage: str, share: float, dtype: str
) -> None:
    """And it is no more than the weights take in the dtype; of 4.5 bits a number less than a third of 16."""
    model, seen = model_of(storage), []
    spec = model.spec(dtype=dtype, weights="stored")
    stage = load_stage(model.card, model.path, spec, lambda *done: seen.append(done))
    assert seen[-1] == (stage.weights_bytes, stage.weights_bytes)
    most = model.stage(dtype=dtype, weights=dtype).weights_bytes
    halved = 2 if dtype == "float32" and storage != "F32" else 1
    assert 0.9 * share * most <= halved * stage.weights_bytes <= share * most
