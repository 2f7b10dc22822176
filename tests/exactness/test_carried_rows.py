"""Stages that begin anywhere give what the whole model gives, though layers read what earlier stages have made."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.errors import ProtocolError
from layerline.frames import Frame, PageRun, TensorBytes
from layerline.models.row_layout import row_into
from layerline.models.sizes import ModelSizes
from layerline.sharing import Sharing
from tests.fakes.gemma4_families import GEMMA4_FAMILIES, SHARING, SHARING_IN_GGUF, in_gguf
from tests.fakes.logits import assert_close
from tests.fakes.made_models import FamilyModel, write_family, write_family_gguf
from tests.fakes.ranked_stages import RankedStage, ranks_of
from tests.fakes.tiny_models import BY_KERNELS, Rows, StageChain, StoredModel, frame_of, logits_of, reference_logits

MODELS = {
    **{name: GEMMA4_FAMILIES[name] for name in ("gemma4_text with inputs", "gemma4_text with one key")},
    "eight heads": FamilyModel(config={**SHARING, "num_attention_heads": 8}),  # of which three ranks have 3, 2 and 3
}
TOKENS = [int(token) for token in np.random.default_rng(31).integers(3, 260, 40)]
EDGES = [(1,), (2,), (4,), (5,), (1, 2, 3, 4, 5), (2, 3)]
MOSTLY_BY_KERNELS = pytest.mark.parametrize(
    "computed", [pytest.param({}, marks=pytest.mark.slow), BY_KERNELS], ids=["torch", "kernels"]
)
COMPUTED = pytest.mark.parametrize("computed", [{}, BY_KERNELS], ids=["torch", "kernels"])
PAGES = (PageRun(first=0, count=32),)


class Case:
    def __init__(self, folder: Path, name: str) -> None:
        self.stored = StoredModel.at(write_family(folder, MODELS[name]))
        self.expected = reference_logits(self.stored.reference(), TOKENS)


@pytest.fixture(scope="module", params=list(MODELS))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("carried") / "model", request.param)


def edges_of(case: Case, inner: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([0, *inner, case.stored.card.spec.layers]))


def assert_exact(case: Case, chain: StageChain) -> None:
    for start in range(0, len(TOKENS), 11):
        rows = Rows(token_ids=TOKENS[start : start + 11], start=start, pages=PAGES)
        (drawn,) = chain.step(rows)
        assert_close(logits_of(drawn), case.expected[min(start + 11, len(TOKENS)) - 1])


@COMPUTED
@pytest.mark.parametrize("inner", EDGES, ids=str)
def test_stages_begin_anywhere(case: Case, inner: Sequence[int], computed: dict[str, Any]) -> None:
    stages = [case.stored.stage(first, end - 1, **computed) for first, end in edges_of(case, inner)]
    assert_exact(case, StageChain(stages))


@MOSTLY_BY_KERNELS
@pytest.mark.parametrize("inner", [(2,), (4,), (1, 5)], ids=str)
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_of_such_stages(case: Case, inner: Sequence[int], ranks: int, computed: dict[str, Any]) -> None:
    """Also of ranks that have the last head of one group and the first of the next."""
    edges = edges_of(case, inner)
    with ThreadPoolExecutor(ranks * len(edges)) as threads:
        stages = [
            RankedStage(ranks_of(case.stored, ranks, first, end - 1, **computed), threads) for first, end in edges
        ]
        assert_exact(case, StageChain(stages))


@COMPUTED
def test_rows_in_bfloat16(case: Case, computed: dict[str, Any]) -> None:
    """What rows carry is rounded like the residual: where all is computed in bfloat16, as it is anyway."""

    def logits(inner: Sequence[int]) -> NDArray[np.float32]:
        edges = edges_of(case, inner)
        stages = [case.stored.stage(first, end - 1, dtype="bfloat16", **computed) for first, end in edges]
        (drawn,) = StageChain(stages).step(Rows(token_ids=TOKENS, pages=PAGES))
        return logits_of(drawn)

    whole, split = logits(()), logits((2, 4))
    most = 0.05 if computed else 0.0
    assert np.abs(split - whole).max() <= most * np.abs(whole).max()


@COMPUTED
@pytest.mark.parametrize("kv_dtype", ["float32", "int8"])
def test_plans_count_what_stages_hold(case: Case, computed: dict[str, Any], kv_dtype: str) -> None:
    card = case.stored.card
    for first, end in ((0, 2), (2, 3), (2, 4), (3, 6), (4, 6), (5, 6), (0, 6)):
        spec = replace(case.stored.spec(first, end - 1, **computed), kv_dtype=kv_dtype)
        for ranks in (1, 2):
            changes = {**computed, "kv_dtype": kv_dtype}
            made = ranks_of(case.stored, ranks, first, end - 1, **changes)
            whole = ModelSizes.of_stage(card, spec)
            for stage, part in zip(made, whole.parts(Sharing(devices=ranks)), strict=True):
                sizes = whole.of_rank(part)
                assert stage.kv_bytes == sizes.kv_bytes_per_token(range(first, end)) * spec.pages * spec.page_tokens
                assert stage.weights_bytes == sizes.weights_bytes(range(first, end))


@COMPUTED
@pytest.mark.parametrize("storage", ["Q8_0", "Q4_0"])
def test_quantised_tables(tmp_path: Path, storage: str, computed: dict[str, Any]) -> None:
    """A stage holds its columns of the table as they are stored, where these are whole blocks."""
    keys = {**SHARING_IN_GGUF, "embedding_length_per_layer_input": 32}
    model = FamilyModel(config={**SHARING, "hidden_size_per_layer_input": 32}, gguf=in_gguf(**keys))
    folder = write_family(tmp_path / "model", model)
    path = write_family_gguf(tmp_path / "model.gguf", folder, model, storage_of=lambda name: stored_as(name, storage))
    stored = StoredModel.at(path)
    stages = {**computed, "weights": "stored"}
    whole, split = stored.chain(1, **stages), stored.chain(3, **stages)
    rows = Rows(token_ids=TOKENS, pages=PAGES)
    assert_close(logits_of(split.step(rows)[0]), logits_of(whole.step(rows)[0]))
    spec = stored.spec(2, 3, **stages)
    (stage,) = ranks_of(stored, 1, 2, 3, **stages)
    assert stage.weights_bytes == ModelSizes.of_stage(stored.card, spec).weights_bytes(range(2, 4))
    table = stored.card.tensor("token_table")
    assert table is not None
    assert table.storage == storage


def stored_as(name: str, storage: str) -> str:
    return storage if name.startswith("per_layer_token_embd") else ""


def between(case: Case, first_layer: int, count: int = 3) -> Frame:
    """A good frame into the stage that begins there."""
    frame = frame_of(Rows(token_ids=TOKENS[:count], pages=PAGES))
    numbers = row_into(case.stored.card.spec, first_layer).numbers
    rows = TensorBytes(dtype="float32", shape=(count, numbers), data=bytes(4 * count * numbers))
    return replace(frame, tensor=rows, ids=frame.tensor)


def test_frames_without_what_is_carried_are_refused(case: Case) -> None:
    stage, good = case.stored.stage(4, 5), between(case, 4)
    stage.run(good)
    ids = good.ids
    assert ids is not None
    foreign = replace(ids, data=np.array([1, 2, 10**6], np.int32).tobytes())
    hidden = case.stored.card.spec.hidden
    residual = TensorBytes(dtype="float32", shape=(3, hidden), data=bytes(4 * 3 * hidden))
    for bad, why in (
        (replace(good, ids=None), "no token ids"),
        (replace(good, ids=foreign), "token ids outside"),
        (replace(good, tensor=residual), "shape"),
        (between(case, 2), "shape"),
    ):
        with pytest.raises(ProtocolError, match=why):
            stage.run(bad)
    first = case.stored.stage(0, 3)
    with pytest.raises(ProtocolError, match="beside its rows"):
        first.run(replace(frame_of(Rows(token_ids=TOKENS[:3], pages=PAGES)), ids=ids))


def test_a_stage_hands_on_what_the_next_one_takes(case: Case) -> None:
    spec = case.stored.card.spec
    sources = {first: row_into(spec, first).sources for first in range(1, spec.layers)}
    assert sources == {1: (), 2: (1,), 3: (1, 2), 4: (1, 2), 5: (1,)}
    product = case.stored.stage(0, 2).run(frame_of(Rows(token_ids=TOKENS[:3], pages=PAGES)))
    assert isinstance(product, Frame)
    assert product.tensor.shape == (3, row_into(spec, 3).numbers)
    assert product.ids is not None
