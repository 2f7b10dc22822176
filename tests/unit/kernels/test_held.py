"""What the kernels hold is what the plan counts: the stored bytes and hardly more, in every form of weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from layerline.models.held import EIGHT_BITS, EIGHT_BITS_FORM, WeightForm, held_storage, matrix_bytes
from layerline.models.sizes import ModelSizes
from node.kernels.library import library
from node.kernels.structures import FORMATS
from node.native.feed_forward import NativeFeedForward
from node.native.matrices import NativeMatrix
from node.native.program import NativeLayer
from node.native.weights import NativeWeights, load_weights
from node.slices.stage_part import StagePart
from tests.bench.models import MODELS
from tests.fakes.family_models import FAMILIES
from tests.fakes.kernel_matrices import GROUPED_STORAGES, SETS, unpacked
from tests.fakes.made_models import write_family, write_family_gguf
from tests.fakes.model_files import TinyModel
from tests.fakes.quantised import FORMS, write_quantised
from tests.fakes.tiny_models import BY_KERNELS, StoredModel

MODEL = TinyModel(hidden=64, intermediate=96, layers=3)
TOKENS = [3, 50, 7, 120, 44, 9, 201]
WEIGHTS = ("stored", "bfloat16", "float32", "int8", "int4")
ROUNDED = {"bfloat16": "BF16", "int8": "Q8_0", "int4": "Q4_1"}
Told = list[tuple[int, int]]


def loaded(stored: StoredModel, weights: str, ranks: int = 1, rank: int = 0) -> tuple[NativeWeights, Told]:
    seen: Told = []
    devices = tuple(f"cpu:{place}" for place in range(ranks))
    spec = stored.spec(**{**BY_KERNELS, "weights": weights, "devices": devices})
    own = StagePart.of(stored.card, stored.path, spec, rank)
    return load_weights(library(), own, lambda *done: seen.append(done)), seen


def matrices_of(layer: NativeLayer) -> list[NativeMatrix]:
    assert layer.mixing is not None
    assert isinstance(layer.feed_forward, NativeFeedForward)
    return [*layer.mixing.mixer.row_matrices, layer.mixing.output, *layer.feed_forward.matrices]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredModel:
    return StoredModel.written(tmp_path_factory.mktemp("held"), MODEL)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_plan_counts_what_is_held(stored: StoredModel, weights: str, ranks: int) -> None:
    for rank in range(ranks):
        made, seen = loaded(stored, weights, ranks, rank)
        matrices = {id(matrix): matrix for layer in made.layers for matrix in matrices_of(layer)}
        matrices |= {id(matrix): matrix for matrix in (made.embedding, made.output) if matrix is not None}
        vectors: list[Any] = [made.final_norm_C]
        for layer in made.layers:
            vectors += [layer.attention_norm_C, layer.feed_forward_norm_C, matrices_of(layer)[0].bias_O]
        held = sum(m.nbytes for m in matrices.values()) + sum(v.nbytes for v in vectors if v is not None)
        assert seen[-1] == (held, held)


@pytest.mark.parametrize("name", FORMS)
def test_the_plan_counts_what_is_held_of_quantised_matrices(tmp_path: Path, name: str) -> None:
    model = TinyModel(hidden=160, intermediate=288, heads=6, head_dim=32, layers=1)
    quantised = StoredModel.at(write_quantised(tmp_path, model, FORMS[name])[0])
    for ranks in (1, 2):
        for rank in range(ranks):
            made, seen = loaded(quantised, "stored", ranks, rank)
            layer = made.layers[0]
            matrices = [*matrices_of(layer), *(end for end in (made.embedding,) if end is not None)]
            vectors = [made.final_norm_C, layer.attention_norm_C, layer.feed_forward_norm_C]
            held = sum(m.nbytes for m in matrices) + sum(v.nbytes for v in vectors if v is not None)
            assert seen[-1] == (held, held)


@pytest.mark.parametrize("name", [name for name in FORMS if "128" in name or "row" in name or "block" in name])
def test_quantised_matrices_take_hardly_more_than_their_pieces(name: str) -> None:
    """FP8 with a scale of 32 bits for each block has one for each row of it here."""
    form = FORMS[name]
    pieces, _ = form.make(np.random.default_rng(2), 512, 1024)
    stored = sum(piece.nbytes for piece in pieces.values())
    within = 1.032 if form.storage == "F8_E4M3_128_F32" else 1.03
    assert matrix_bytes(form.storage, 512, 1024) <= within * stored


@pytest.mark.parametrize("weights", ["float32", *ROUNDED])
def test_weights_are_rounded_as_gguf_rounds_them(stored: StoredModel, weights: str) -> None:
    exact, rounded = (matrices_of(loaded(stored, each)[0].layers[1])[-1] for each in ("stored", weights))
    numbers, held = (unpacked(matrix, SETS[0]) for matrix in (exact, rounded))
    kind = GGMLQuantizationType[ROUNDED.get(weights, "F32")]
    assert np.array_equal(held, dequantize(quantize(numbers, kind), kind))


@pytest.mark.parametrize("storage", FORMATS)
def test_a_stored_form_is_held_as_it_is_where_columns_are_whole_blocks(storage: str) -> None:
    assert held_storage(storage, "stored", range(256, 768), 1024) == storage
    ragged = held_storage(storage, "stored", range(8, 264), 1024)
    assert ragged == (storage if storage in ("F32", "F16", "BF16") else "F32")


@pytest.mark.parametrize(
    ("storage", "expected"),
    [(storage, EIGHT_BITS_FORM) for storage in sorted(EIGHT_BITS)]
    + [(storage, "F32") for storage in ("IQ1_M", "IQ2_XS", "IQ2_S")],
)
def test_what_the_kernels_do_not_multiply_loses_nothing(storage: str, expected: str) -> None:
    assert held_storage(storage, "stored", range(256), 256) == expected
    assert held_storage(storage, "bfloat16", range(256), 256) == "BF16"


@pytest.mark.parametrize(
    ("storage", "columns", "is_held"),
    [
        ("INT4_128_F16", range(128, 384), True),
        ("INT4_128_F16", range(128, 352), True),  # the last group need not be whole
        ("INT4_128_F16", range(64, 320), False),
        ("INT4_128_F16", range(128, 370), False),
        ("INT4_ROW_F16", range(32, 320), True),
        ("INT8_ROW_BF16", range(40, 328), False),
        ("INT4_48_F16", range(384), False),
        ("INT4_128_F16_ORDERED", range(384), True),
        ("INT4_128_F16_ORDERED", range(256), False),
        ("F8_E4M3_128_F32", range(128, 333), True),
        ("F8_E4M3_128_F32", range(64, 333), False),
        ("F8_E4M3_ROW_F32", range(5, 333), True),
    ],
)
def test_columns_begin_with_a_group_and_have_their_order(storage: str, columns: range, is_held: bool) -> None:
    assert held_storage(storage, "stored", columns, 384) == (storage if is_held else "F32")


@pytest.mark.parametrize("storage", [*FORMATS, *GROUPED_STORAGES])
def test_bytes_are_those_of_the_library(storage: str) -> None:
    for columns in (512, 256) if storage in FORMATS else (512, 224, 32):
        assert matrix_bytes(storage, 33, columns) == 3 * library().panel_bytes(storage, columns)


def test_a_real_file_takes_hardly_more_than_its_bytes() -> None:
    stored = StoredModel.at(MODELS["smollm2"].fetch())
    sizes = ModelSizes.of(stored.card, WeightForm(dtype="float32", weights="stored", kernels=True), "bfloat16")
    held = sizes.weights_bytes(range(30))
    assert held <= 1.03 * sum(entry.nbytes for entry in stored.card.tensors)


def test_the_plan_counts_what_is_held_beside_a_latent(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "folder", FAMILIES["deepseek_v3"])
    file = write_family_gguf(tmp_path / "model.gguf", folder, FAMILIES["deepseek_v3"])
    for stored in map(StoredModel.at, (folder, file)):
        for weights in ("stored", "float32", "bfloat16"):
            for rank in range(2):
                _, seen = loaded(stored, weights, 2, rank)
                assert seen[-1][0] == seen[-1][1]
