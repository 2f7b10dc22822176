"""Quantised models give the logits of `transformers` with the same numbers, by kernels and by torch."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.models.held import WeightForm
from layerline.models.model_parts import model_parts
from layerline.models.sizes import ModelSizes
from node.load_stage import load_stage
from tests.fakes.cases import cases
from tests.fakes.logits import assert_close
from tests.fakes.model_files import TinyModel
from tests.fakes.quantised import FORMS, write_quantised
from tests.fakes.ranked_stages import ranked_chain
from tests.fakes.tiny_models import BY_KERNELS, Rows, StageChain, StoredModel, chunks, logits_of, reference_logits

TOKENS = [int(token) for token in np.random.default_rng(11).integers(3, 260, 20)]
MODEL = TinyModel(family="qwen2", hidden=160, intermediate=288, heads=6, kv_heads=2, head_dim=32, layers=2)
STORED: dict[str, Any] = {"weights": "stored"}
PHI3 = TinyModel(family="phi3", hidden=128, intermediate=256, heads=4, kv_heads=2, head_dim=32, layers=2)


class Case(NamedTuple):
    """A quantised model, and the logits [tokens, vocabulary] of its numbers in float32."""

    stored: StoredModel
    expected: NDArray[np.float32]


@functools.cache
def case_in(folder: Path, name: str, model: TinyModel = MODEL) -> Case:
    quantised, plain = write_quantised(folder / model.family / name, model, FORMS[name])
    return Case(StoredModel.at(quantised), reference_logits(StoredModel.at(plain).reference(), TOKENS))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantised")


def assert_exact(case: Case, chain: StageChain) -> None:
    """In one step, and in chunks, the last of which is one token."""
    for size in (len(TOKENS), 19):
        for start, token_ids in chunks(TOKENS, size):
            (drawn,) = chain.step(Rows(token_ids=token_ids, start=start))
            assert_close(logits_of(drawn), case.expected[start + len(token_ids) - 1])


@pytest.mark.parametrize("computed", [{}, STORED, BY_KERNELS], ids=["torch", "stored", "kernels"])
@pytest.mark.parametrize("name", FORMS)
def test_a_stage(folder: Path, name: str, computed: dict[str, Any]) -> None:
    case = case_in(folder, name)
    assert_exact(case, case.stored.chain(1, **computed))


@pytest.mark.parametrize("name", cases(list(FORMS), more=["gptq-4-row", "fp8-block", "mxfp4", "bytes-8-64-zeros"]))
@pytest.mark.parametrize("computed", [STORED, BY_KERNELS], ids=["stored", "kernels"])
def test_ranks(folder: Path, name: str, computed: dict[str, Any]) -> None:
    case = case_in(folder, name)
    with ranked_chain(case.stored, (2,), **computed) as chain:
        assert_exact(case, chain)


@pytest.mark.parametrize("name", ["gptq-4-32-ordered", "awq-128", "packed-4-128-zeros", "fp8-block", "fp8-matrix"])
@pytest.mark.parametrize("computed", [STORED, BY_KERNELS], ids=["stored", "kernels"])
def test_stacked_matrices(folder: Path, name: str, computed: dict[str, Any]) -> None:
    case = case_in(folder, name, PHI3)
    assert_exact(case, case.stored.chain(2, **computed))
    with ranked_chain(case.stored, (2,), **computed) as chain:
        assert_exact(case, chain)


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])
@pytest.mark.parametrize("name", ["gptq-4-128", "gptq-4-row", "gptq-4-32-ordered", "fp8-block", "bytes-8-row"])
def test_what_is_converted_is_told(folder: Path, name: str, kernels: bool) -> None:
    stored, storage = case_in(folder, name).stored, FORMS[name].storage
    form = WeightForm(dtype="float32", weights="stored", kernels=kernels)
    sizes = ModelSizes.of(stored.card, form, "float32")
    assert sizes.converted(range(2)) == frozenset()
    ranks = [sizes.of_rank(part).converted(range(2)) for part in model_parts(stored.card.spec, 2)]
    # The second begins in the middle of a group, unless it serves the whole row; an order is never divided.
    expected = {(storage, "F32")} if "ROW" not in storage else set()
    assert ranks == [expected if "ORDERED" in storage else set(), expected]


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])
def test_groups_of_any_size_are_held_by_torch_alone(folder: Path, kernels: bool) -> None:
    form = WeightForm(dtype="bfloat16", weights="stored", kernels=kernels)
    sizes = ModelSizes.of(case_in(folder, "gptq-4-48").stored.card, form, "bfloat16")
    assert sizes.converted(range(2)) == ({("INT4_48_F16", "F32")} if kernels else frozenset())
    assert sizes.unpacks is not kernels


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_what_is_counted_is_what_torch_loads(folder: Path, name: str, dtype: str) -> None:
    stored, told = case_in(folder, name).stored, []
    spec = stored.spec(dtype=dtype, **STORED)
    stage = load_stage(stored.card, stored.path, spec, lambda *done: told.append(done))
    assert told[-1] == (stage.weights_bytes, stage.weights_bytes)
    assert stage.weights_bytes < stored.stage(dtype=dtype, weights=dtype).weights_bytes
