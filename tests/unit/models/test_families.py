"""From config.json and GGUF metadata to specs; what a spec cannot express is refused by name."""

import math
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models import families
from layerline.models.headers import read_headers
from layerline.models.known_families import family_of_gguf, known_families
from layerline.models.rope_factors import llama3_factors
from layerline.models.sizes import ModelSizes
from layerline.models.spec import ModelSpec, RopeSpec
from tests.fakes.family_traits import TRAITS
from tests.fakes.model_files import EPSILON, ROPE_THETA, TinyModel, stored_name, write_folder, write_gguf, write_json

LLAMA = TinyModel()
QWEN2 = TinyModel(family="qwen2", tied_output=False)
PHI3 = TinyModel(family="phi3")
QWEN3 = TinyModel(family="qwen3")
MISTRAL = TinyModel(family="mistral")
QWEN2_WINDOW = {"use_sliding_window": True, "sliding_window": 16}
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
WITHOUT_ORIGINAL = {key: value for key, value in LLAMA3_SCALING.items() if not key.startswith("original")}
LLAMA3_ROPE = RopeSpec(theta=ROPE_THETA, scaling="llama3", factor=8.0)


def windows_of(spec: ModelSpec) -> list[int]:
    return [spec.layer(index).attention.window_tokens for index in range(spec.layers)]


def rope_of(path: Path) -> RopeSpec | None:
    return read_headers(path).spec.layer(1).attention.rope


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


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, RopeSpec(theta=ROPE_THETA, scaling="linear", factor=2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}}, LLAMA3_ROPE),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}, "rope_theta": None}, RopeSpec(theta=5.0)),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": ROPE_THETA, **LLAMA3_SCALING}}, LLAMA3_ROPE),
        (
            {
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 5.0},
                "rope_scaling": {"type": "linear", "factor": 4},
            },
            RopeSpec(theta=ROPE_THETA, scaling="linear", factor=4.0),
        ),
        (
            {"rope_parameters": {"type": "linear", "factor": 2, "rope_theta": 5.0}, "rope_scaling": {}},
            RopeSpec(theta=5.0, scaling="linear", factor=2.0),
        ),
        ({"rope_parameters": None, "rope_scaling": None}, RopeSpec(theta=ROPE_THETA)),
        (
            {"rope_scaling": {"rope_type": "llama3", **LLAMA3_SCALING}, "original_max_position_embeddings": 64},
            replace(LLAMA3_ROPE, original_context_tokens=64),
        ),
        (
            {"rope_scaling": {"rope_type": "llama3", **WITHOUT_ORIGINAL}},
            replace(LLAMA3_ROPE, original_context_tokens=256),
        ),
        ({"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}}, RopeSpec(theta=ROPE_THETA)),
        ({"original_max_position_embeddings": 64}, RopeSpec(theta=ROPE_THETA)),
    ],
)
def test_rotary_settings_of_a_config(tmp_path: Path, config: Mapping[str, object], rope: RopeSpec) -> None:
    assert read_headers(write_folder(tmp_path, LLAMA, config=config)).spec.layer(1).attention.rope == rope


def test_rotary_settings_of_a_gguf(tmp_path: Path) -> None:
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    wanted = RopeSpec(theta=ROPE_THETA, scaling="linear", factor=4.0)
    assert rope_of(write_gguf(tmp_path / "linear.gguf", LLAMA, metadata=scaling)) == wanted
    older = {"llama.rope.scale_linear": 4.0}
    assert rope_of(write_gguf(tmp_path / "older.gguf", LLAMA, metadata=older)) == wanted
    unscaled = {**scaling, "llama.rope.scaling.type": "none"}
    assert rope_of(write_gguf(tmp_path / "none.gguf", LLAMA, metadata=unscaled)) == RopeSpec(theta=ROPE_THETA)
    zero = {"llama.rope.scaling.factor": 0.0}
    assert rope_of(write_gguf(tmp_path / "zero.gguf", LLAMA, metadata=zero)) == RopeSpec(theta=ROPE_THETA)
    factors = {"rope_freqs.weight": llama3_factors(LLAMA3_ROPE, LLAMA.head_dim)}
    assert (
        read_headers(write_gguf(tmp_path / "llama3.gguf", LLAMA, tensors=factors)).spec.layer(1).attention.rope
        == LLAMA3_ROPE
    )


def test_rotary_divisors_of_another_scaling_are_refused(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.linspace(1, 8, LLAMA.head_dim // 2, dtype=np.float32)}
    with pytest.raises(ModelUnsupportedError, match=r"rope_freqs\.weight"):
        read_headers(write_gguf(tmp_path / "model.gguf", LLAMA, tensors=factors))


@pytest.mark.parametrize(
    ("model", "config", "feature"),
    [
        (LLAMA, {"model_type": "mamba"}, "'mamba', which layerline does not know.*llama, "),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        (LLAMA, {"attention_bias": True}, "attention_bias"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias"),
        (QWEN3, {"attention_bias": True}, "attention_bias"),
        (PHI3, {"rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, "rope scaling 'longrope'"),
        (PHI3, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling 'linear' of a phi3 model"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        (LLAMA, {"sliding_window": 16}, "sliding window"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (LLAMA, {"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        (QWEN2, {"layer_types": ["full_attention", "sliding_attention"]}, "without a window"),
        (MISTRAL, {"layer_types": ["full_attention"] * 2}, "ministral"),
        (MISTRAL, {"sliding_window": 0}, "sliding_window of 0 tokens"),
        (QWEN2, {"use_sliding_window": True, "sliding_window": 0}, "sliding_window of 0 tokens"),
        (LLAMA, {"is_causal": False}, "is_causal"),
        (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (LLAMA, {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "from layer to layer"),
        (LLAMA, {"rope_parameters": {}, "rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope scaling 'yarn'"),
        (QWEN2, {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        (QWEN2, {"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_unsupported_configs(tmp_path: Path, model: TinyModel, config: Mapping[str, object], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        read_headers(write_folder(tmp_path, model, config=config))


@pytest.mark.parametrize(
    "config",
    [
        {"use_sliding_window": False, "sliding_window": 16},
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
        {"use_sliding_window": True, "sliding_window": 1 << 20},
    ],
)
def test_a_window_that_is_not_in_use_is_no_matter(tmp_path: Path, config: Mapping[str, object]) -> None:
    spec = read_headers(write_folder(tmp_path, QWEN2, config=config)).spec
    assert (spec.reach_tokens, windows_of(spec)) == (0, [0, 0])


@pytest.mark.parametrize(
    ("model", "config", "windows", "reach_tokens"),
    [
        (MISTRAL, {"sliding_window": 16}, [16, 16], 16),
        (MISTRAL, {"sliding_window": None}, [0, 0], 0),
        (QWEN2, {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}, [0, 16], 0),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["full_attention", "sliding_attention"]}, [0, 16], 0),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["sliding_attention"] * 2}, [16, 16], 16),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["full_attention"] * 2}, [0, 0], 0),
        (QWEN2, {**QWEN2_WINDOW, "layer_types": ["sliding_attention", "full_attention"]}, [16, 0], 0),
        (MISTRAL, {"sliding_window": 16, "max_window_layers": 1}, [16, 16], 16),
        (MISTRAL, {"max_position_embeddings": 8192}, [4096, 4096], 4096),
        (QWEN2, {"use_sliding_window": True, "max_window_layers": 1, "max_position_embeddings": 8192}, [0, 4096], 0),
        (QWEN2, QWEN2_WINDOW, [0, 0], 0),  # max_window_layers is 28 where it is not said
        (QWEN2, {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}, [0, 0], 0),
        (QWEN2, {"use_sliding_window": False, "sliding_window": 0}, [0, 0], 0),
    ],
)
def test_the_window_of_each_layer(
    tmp_path: Path, model: TinyModel, config: Mapping[str, object], windows: list[int], reach_tokens: int
) -> None:
    spec = read_headers(write_folder(tmp_path, model, config=config)).spec
    assert windows_of(spec) == windows
    assert spec.reach_tokens == reach_tokens


def test_a_window_in_a_gguf_is_that_of_every_layer(tmp_path: Path) -> None:
    """Mistral calls itself llama there. Of Qwen2 it does not say which layers have it."""
    window = {"llama.attention.sliding_window": 16}
    assert read_headers(write_gguf(tmp_path / "m.gguf", LLAMA, metadata=window)).spec.reach_tokens == 16
    as_context = {"llama.attention.sliding_window": LLAMA.context_tokens}
    assert read_headers(write_gguf(tmp_path / "c.gguf", LLAMA, metadata=as_context)).spec.reach_tokens == 0
    with pytest.raises(ModelUnsupportedError, match="in which layers"):
        read_headers(write_gguf(tmp_path / "q.gguf", QWEN2, metadata={"qwen2.attention.sliding_window": 16}))


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        ({"general.architecture": "mamba"}, "'mamba', which layerline does not know.*llama, "),
        ({"general.architecture": "mistral"}, "'mistral', which layerline does not know.*llama, "),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn'"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"llama.attention.head_count_kv": [1, 2]}, "from layer to layer"),
        ({"llama.attention.value_length": 8}, "unlike length"),
        ({"llama.rope.dimension_count": 8}, "a part of each head"),
        ({"llama.attention.causal": False}, "attention.causal"),
        ({"llama.rope.scaling.attn_factor": 1.5}, "attn_factor"),
        ({"tokenizer.ggml.add_eos_token": True}, "add_eos_token"),
    ],
)
def test_unsupported_metadata(tmp_path: Path, metadata: Mapping[str, object], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        read_headers(write_gguf(tmp_path / "model.gguf", LLAMA, metadata=metadata))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers must be a whole number, but is None"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers must be a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number"),
        ({"num_attention_heads": 0}, "out of range"),
        ({"num_key_value_heads": 0}, "out of range"),
        ({"num_key_value_heads": 3}, "multiple of kv_heads"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a number"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps must be a number"),
        ({"max_position_embeddings": 1 << 70}, "max_position_embeddings must be a whole number"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor must be a number from 1e-06"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3_SCALING, "low_freq_factor": 4.0}}, "more than low_freq_factor"),
        ({"rope_scaling": [1]}, "rope_scaling must be an object"),
        ({"rope_theta": -1.0}, "rope_theta must be a number from 1e-06"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3_SCALING, "factor": 1e-320}}, "factor must be a number from"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3_SCALING, "factor": 1e308}}, "factor must be a number from"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3_SCALING, "high_freq_factor": 1e300}}, "high_freq_factor must be"),
        (
            {"rope_scaling": {"type": "llama3", **LLAMA3_SCALING}, "original_max_position_embeddings": 10**18},
            "original_context_tokens out of range",
        ),
        (
            {"rope_scaling": {"type": "llama3", **LLAMA3_SCALING}, "original_max_position_embeddings": None},
            "whole number",
        ),
        ({"rope_theta": None}, "rope_theta must be a number, but is None"),
        ({"tie_word_embeddings": None}, "tie_word_embeddings must be true or false, but is None"),
        ({"hidden_act": None}, "hidden_act must be a string"),
        ({"max_position_embeddings": None}, "max_position_embeddings must be a whole number, but is None"),
        ({"num_hidden_layers": 1 << 40}, "num_hidden_layers must be from 1 to"),
        ({"num_hidden_layers": 3}, r"Tensor model\.layers\.2\..* is missing"),
        ({"intermediate_size": 95}, r"mlp\.gate_proj\.weight .*\[96, 64\].*\[95, 64\]"),
    ],
)
def test_configs_that_cannot_be(tmp_path: Path, config: Mapping[str, object], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        read_headers(write_folder(tmp_path, LLAMA, config=config))


def test_a_missing_tensor_and_a_wrong_shape_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match=r"blk\.1\.attn_k\.weight is missing"):
        read_headers(write_gguf(tmp_path / "missing.gguf", LLAMA, tensors={"blk.1.attn_k.weight": None}))
    wrong = {"blk.1.ffn_up.weight": np.zeros((32, 64), np.float32)}
    with pytest.raises(ModelCorruptError, match=r"blk\.1\.ffn_up\.weight .*shape \[32, 64\]"):
        read_headers(write_gguf(tmp_path / "wrong.gguf", LLAMA, tensors=wrong))


def test_a_tensor_that_would_not_be_used_is_refused(tmp_path: Path) -> None:
    bias = {"blk.0.attn_output.bias": np.zeros(64, np.float32)}
    with pytest.raises(ModelUnsupportedError, match=r"blk\.0\.attn_output\.bias"):
        read_headers(write_gguf(tmp_path / "model.gguf", LLAMA, tensors=bias))


def test_what_tied_models_carry_along_is_no_matter(tmp_path: Path) -> None:
    extra = {
        stored_name("output", "safetensors"): LLAMA.weights()["embedding"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32),
    }
    headers = read_headers(write_folder(tmp_path, LLAMA, tensors=extra))
    assert {entry.name for entry in headers.tensors} == set(LLAMA.shapes())
    assert headers.notes == ()


def test_a_tied_model_with_another_output_has_that_one_and_it_is_said(tmp_path: Path) -> None:
    other = {"lm_head.weight": LLAMA.weights()["embedding"] + 1}
    headers = read_headers(write_folder(tmp_path, LLAMA, tensors=other))
    assert not headers.spec.tied_output
    assert "output" in {entry.name for entry in headers.tensors}
    assert ["lm_head.weight" in note for note in headers.notes] == [True]


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
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    with pytest.raises(ModelCorruptError, match=r"no tokenizer\.json.* it has tokenizer\.model") as raised:
        read_headers(folder)
    assert "AutoTokenizer" in raised.value.remedy


@pytest.mark.parametrize("family", TRAITS)
def test_the_bytes_of_a_stage_are_those_of_its_tensors(tmp_path: Path, family: str) -> None:
    headers = read_headers(write_folder(tmp_path, TinyModel(family=family, layers=3, head_dim=24)))
    numbers = {entry.name: math.prod(entry.shape) for entry in headers.tensors}
    middle = sum(count for name, count in numbers.items() if name.startswith("layers.1."))
    sizes = ModelSizes.of(headers, dtype="float32", kv_dtype="float32")
    assert sizes.weights_bytes(range(1, 2)) == 4 * middle
    assert sizes.weights_bytes(range(3)) == 4 * sum(numbers.values())
