"""What a spec cannot express, and what cannot be, is refused by name."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.headers import read_headers
from tests.fakes.model_files import TinyModel, write_folder, write_gguf

LLAMA = TinyModel()
QWEN2 = TinyModel(family="qwen2", tied_output=False)
PHI3 = TinyModel(family="phi3")
QWEN3 = TinyModel(family="qwen3")
MISTRAL = TinyModel(family="mistral")
LLAMA3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("model", "config", "feature"),
    [
        (LLAMA, {"model_type": "mamba"}, "'mamba', which layerline does not know.*llama, "),
        (LLAMA, {"rope_scaling": {"rope_type": "ntk", "factor": 4.0}}, "rope scaling 'ntk'"),
        (QWEN3, {"attention_bias": True}, "attention_bias"),
        (PHI3, {"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope scaling 'yarn' of a phi3 model"),
        (PHI3, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope scaling 'linear' of a phi3 model"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        (LLAMA, {"sliding_window": 16}, "sliding window"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (LLAMA, {"quantization_config": {"quant_method": "bitsandbytes"}}, "quant_method 'bitsandbytes'"),
        (QWEN2, {"layer_types": ["full_attention", "sliding_attention"]}, "without a window"),
        (MISTRAL, {"layer_types": ["full_attention"] * 2}, "ministral"),
        (MISTRAL, {"sliding_window": 0}, "sliding_window of 0 tokens"),
        (QWEN2, {"use_sliding_window": True, "sliding_window": 0}, "sliding_window of 0 tokens"),
        (LLAMA, {"is_causal": False}, "is_causal"),
        (MISTRAL, {"per_layer_config": {"1": {"sliding_window": 8}}}, "per_layer_config"),
        (LLAMA, {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (LLAMA, {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "from layer to layer"),
        (LLAMA, {"rope_parameters": {}, "rope_scaling": {"type": "ntk", "factor": 4.0}}, "rope scaling 'ntk'"),
        (QWEN2, {"layer_types": ["full_attention", "chunked_attention"]}, "layer_types"),
        (QWEN2, {"layer_types": ["full_attention"]}, "layer_types"),
    ],
)
def test_unsupported_configs(tmp_path: Path, model: TinyModel, config: Mapping[str, object], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        read_headers(write_folder(tmp_path, model, config=config))


@pytest.mark.parametrize(
    ("metadata", "feature"),
    [
        ({"general.architecture": "mamba"}, "'mamba', which layerline does not know.*llama, "),
        ({"general.architecture": "mistral"}, "'mistral', which layerline does not know.*llama, "),
        ({"llama.rope.scaling.type": "ntk"}, "rope scaling 'ntk'"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5}, "yarn_ext_factor"),
        (
            {"llama.expert_count": 8, "llama.expert_used_count": 2, "llama.expert_group_count": 2},
            "groups of experts",
        ),
        ({"llama.attention.head_count_kv": [1, 2]}, "from layer to layer"),
        ({"llama.attention.value_length": 8}, "unlike length"),
        ({"llama.rope.dimension_count": 8}, "a part of each head"),
        ({"llama.attention.causal": False}, "attention.causal"),
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
        (
            {"rope_scaling": {"type": "llama3", **LLAMA3_SCALING, "low_freq_factor": 4.5}},
            "no less than low_freq_factor",
        ),
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
