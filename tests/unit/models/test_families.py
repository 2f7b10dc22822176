"""From config.json, GGUF metadata and tensors of each family to its specs."""

import math
import pkgutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models import families
from layerline.models.card import ModelCard
from layerline.models.headers import read_headers
from layerline.models.index import index_model
from layerline.models.known_families import family_of_gguf, known_families
from layerline.models.rope_spec import RopeSpec
from layerline.models.sizes import ModelSizes
from tests.fakes.cards import PLAIN
from tests.fakes.family_traits import TRAITS
from tests.fakes.model_files import EPSILON, ROPE_THETA, TinyModel, stored_name, write_folder, write_gguf, write_json

LLAMA = TinyModel()
QWEN2 = TinyModel(family="qwen2", tied_output=False)
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
WITHOUT_ORIGINAL = {key: value for key, value in LLAMA3_SCALING.items() if not key.startswith("original")}


def indexed(path: Path) -> ModelCard:
    return index_model(path, "tiny", lambda _done, _total: None)


def test_both_containers_give_one_spec(tmp_path: Path) -> None:
    for model in (LLAMA, QWEN2):
        from_gguf = read_headers(write_gguf(tmp_path / model.family / "model.gguf", model)).spec
        from_folder = read_headers(write_folder(tmp_path / model.family, model)).spec
        assert from_gguf == from_folder
        assert (from_gguf.family, from_gguf.layers, from_gguf.vocabulary) == (model.family, 2, model.vocabulary)
        assert (from_gguf.layer(1).attention.qkv_bias, from_gguf.tied_output) == (
            model.family == "qwen2",
            model.tied_output,
        )
        assert (from_gguf.norm_epsilon, from_gguf.layer(1).attention.rope) == (EPSILON, RopeSpec(theta=ROPE_THETA))


def test_rows_of_llama_queries_and_keys_are_marked_in_gguf_only(tmp_path: Path) -> None:
    def marked(path: Path) -> set[str]:
        return {entry.name for entry in read_headers(path).tensors if entry.rope_pairs}

    assert marked(write_gguf(tmp_path / "llama.gguf", LLAMA)) == {
        "layers.0.q",
        "layers.0.k",
        "layers.1.q",
        "layers.1.k",
    }
    assert marked(write_gguf(tmp_path / "qwen2.gguf", QWEN2)) == set()
    assert marked(write_folder(tmp_path / "llama", LLAMA)) == set()


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"blk\.1\.attn_k\.weight is missing"):
        read_headers(write_gguf(tmp_path / "missing.gguf", LLAMA, tensors={"blk.1.attn_k.weight": None}))
    wrong = {"blk.1.ffn_up.weight": np.zeros((32, 64), np.float32)}
    with pytest.raises(ModelCorruptError, match=r"blk\.1\.ffn_up\.weight .*shape \[32, 64\]"):
        read_headers(write_gguf(tmp_path / "wrong.gguf", LLAMA, tensors=wrong))


def test_a_tensor_that_would_not_be_used_is_refused(tmp_path: Path) -> None:
    bias = {"blk.0.attn_norm.bias": np.zeros(64, np.float32)}
    with pytest.raises(ModelUnsupportedError, match=r"blk\.0\.attn_norm\.bias"):
        read_headers(write_gguf(tmp_path / "model.gguf", LLAMA, tensors=bias))


def test_what_tied_models_carry_along_is_no_matter(tmp_path: Path) -> None:
    extra = {
        stored_name("output", "safetensors"): LLAMA.weights()["embedding"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32),
    }
    card = indexed(write_folder(tmp_path / "extra", LLAMA, tensors=extra))
    lean = indexed(write_folder(tmp_path / "lean", LLAMA))
    assert {entry.name for entry in card.tensors} == set(LLAMA.shapes())
    assert (card.spec, card.digest, card.notes) == (lean.spec, lean.digest, ())


@pytest.mark.parametrize("other", [LLAMA.weights()["embedding"] + 1, LLAMA.weights()["embedding"].astype(np.float16)])
def test_a_tied_model_with_another_output_has_that_one_and_it_is_said(
    tmp_path: Path, other: NDArray[np.generic]
) -> None:
    card = indexed(write_folder(tmp_path, LLAMA, tensors={"lm_head.weight": other}))
    assert not card.spec.tied_output
    assert "output" in {entry.name for entry in card.tensors}
    assert ["lm_head.weight" in note for note in card.notes] == [True]


def test_an_untied_model_keeps_an_output_that_is_equal_to_its_embedding(tmp_path: Path) -> None:
    card = indexed(write_folder(tmp_path, QWEN2, tensors={"lm_head.weight": QWEN2.weights()["embedding"]}))
    assert (card.spec.tied_output, card.notes) == (False, ())
    assert card.tensor("output") is not None


def test_a_tied_model_may_have_its_one_matrix_by_the_name_of_the_output(tmp_path: Path) -> None:
    renamed = {"model.embed_tokens.weight": None, "lm_head.weight": LLAMA.weights()["embedding"]}
    headers = read_headers(write_folder(tmp_path, LLAMA, tensors=renamed))
    assert headers.spec.tied_output
    assert [entry.stored_names for entry in headers.tensors if entry.name == "embedding"] == ["lm_head.weight"]


@pytest.mark.parametrize("tied", [True, False])
def test_a_base_model_saved_without_its_prefix_is_read_if_it_is_whole(tmp_path: Path, tied: bool) -> None:
    model = TinyModel(tied_output=tied)
    named = {stored_name(name, "safetensors"): rows for name, rows in model.weights().items() if name != "output"}
    bare = {name.removeprefix("model."): rows for name, rows in named.items()}
    folder = write_folder(tmp_path, model, tensors={**dict.fromkeys(named), "lm_head.weight": None, **bare})
    if tied:
        assert {entry.name for entry in read_headers(folder).tensors} == set(model.shapes())
        return
    with pytest.raises(ModelCorruptError, match=r"lm_head\.weight is missing") as raised:
        read_headers(folder)
    assert "base model" in raised.value.remedy


@pytest.mark.parametrize(
    ("missing", "model", "wanted"),
    [
        ("num_key_value_heads", TinyModel(heads=4, kv_heads=4), 4),
        ("num_key_value_heads", TinyModel(family="mistral", heads=8, kv_heads=8, head_dim=8), 8),
        ("num_key_value_heads", TinyModel(family="qwen2", heads=32, kv_heads=32, head_dim=2), 32),
        ("num_key_value_heads", TinyModel(family="qwen3", heads=32, kv_heads=32, head_dim=2), 32),
        ("head_dim", TinyModel(family="qwen3", head_dim=128), 2),
    ],
)
def test_key_value_heads_where_they_are_not_said(tmp_path: Path, missing: str, model: TinyModel, wanted: int) -> None:
    folder = write_folder(tmp_path, model)
    write_json(folder / "config.json", {key: value for key, value in model.config().items() if key != missing})
    assert read_headers(folder).spec.layer(0).attention.kv_heads == wanted


@pytest.mark.parametrize(
    ("family", "context_tokens"), [("llama", 2048), ("mistral", 131072), ("qwen2", 32768), ("qwen3", 32768)]
)
def test_the_context_where_it_is_not_said(tmp_path: Path, family: str, context_tokens: int) -> None:
    folder, model = tmp_path, TinyModel(family=family)
    config = model.config()
    del config["max_position_embeddings"]
    write_json(write_folder(folder, model) / "config.json", config)
    assert read_headers(folder).spec.context_tokens == context_tokens


def test_a_family_is_one_module_and_found_by_being_there() -> None:
    names = {module.name for module in pkgutil.iter_modules(families.__path__)}
    assert {family.model_type for family in known_families()} == names
    assert family_of_gguf("llama").model_type == "llama"


def test_a_folder_with_pickled_weights_only_is_told_what_to_do(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, LLAMA)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelUnsupportedError, match=r"weights in pytorch_model\.bin") as raised:
        read_headers(folder)
    assert "save_pretrained" in raised.value.remedy


def test_a_folder_without_a_tokenizer_json_is_told_what_to_do(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, LLAMA)
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    with pytest.raises(ModelCorruptError, match=r"no tokenizer\.json.* it has vocab\.json, another form") as raised:
        read_headers(folder)
    assert "AutoTokenizer" in raised.value.remedy


@pytest.mark.parametrize("family", TRAITS)
def test_the_bytes_of_a_stage_are_those_of_its_tensors(tmp_path: Path, family: str) -> None:
    headers = read_headers(write_folder(tmp_path, TinyModel(family=family, layers=3, head_dim=24)))
    numbers = {entry.name: math.prod(entry.shape) for entry in headers.tensors}
    middle = sum(count for name, count in numbers.items() if name.startswith("layers.1."))
    sizes = ModelSizes.of(headers, PLAIN, "float32")
    assert sizes.weights_bytes(range(1, 2)) == 4 * middle
    assert sizes.weights_bytes(range(3)) == 4 * sum(numbers.values())
