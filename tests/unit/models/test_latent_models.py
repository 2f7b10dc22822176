"""Models whose attention has a latent: what their configs mean, and what of them is refused by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.config_fields import ConfigFields
from layerline.models.headers import read_headers
from layerline.models.json_file import read_json
from layerline.models.known_families import family_of_config
from layerline.models.kv_sizes import position_bytes
from layerline.models.spec import ModelSpec
from node.model.attention.pools import layer_pool
from node.native.kv_pages import KvPages
from tests.fakes.family_models import FAMILIES
from tests.fakes.made_models import HEADS, copied, write_family, write_family_gguf
from tests.fakes.model_files import write_json

DEEPSEEK_V3: dict[str, object] = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 128,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
    "max_position_embeddings": 163840,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    },
}
PER_POSITION = {"float32": 4 * 576, "bfloat16": 2 * 576, "int8": 576 + 2 * 576 // 32}


def spec_of(**changes: object) -> ModelSpec:
    config = {**DEEPSEEK_V3, **changes}
    return family_of_config(str(config["model_type"])).from_config(ConfigFields(config, "config.json"))


@pytest.mark.parametrize("kv_dtype", PER_POSITION)
def test_a_page_has_the_latent_and_what_is_turned_and_nothing_beside(kv_dtype: str) -> None:
    attention = spec_of().layer(0).attention
    assert position_bytes(attention, kv_dtype) == PER_POSITION[kv_dtype]
    pages = KvPages([attention], pages=2, page_tokens=16, kv_dtype=kv_dtype)
    assert pages.nbytes == 32 * PER_POSITION[kv_dtype]
    pool = layer_pool(attention, 32, kv_dtype, dtype=torch.float32, device=torch.device("cpu"))
    assert pool.nbytes == 32 * PER_POSITION[kv_dtype]


def test_scores_are_scaled_by_the_query_as_it_is_made_and_by_yarn() -> None:
    growth = 0.1 * math.log(40) + 1
    attention = spec_of().layer(0).attention
    assert attention.score_scale == pytest.approx(growth * growth / math.sqrt(192), rel=1e-6)
    assert attention.rope is not None
    assert (attention.rope.amplitude, attention.rope.rotated, attention.rope.interleaved) == (1.0, 64, True)
    plain = spec_of(rope_scaling=None).layer(0).attention
    assert plain.score_scale == pytest.approx(1 / math.sqrt(192), rel=1e-6)


def test_norms_of_latents_have_an_epsilon_of_their_own() -> None:
    spec = spec_of()
    latent = spec.layer(0).attention.latent
    assert latent is not None
    assert (spec.norm_epsilon, latent.norm_epsilon) == (1e-5, 1e-6)


def test_first_layers_are_dense_and_the_others_have_experts() -> None:
    spec = spec_of()
    experts = [spec.layer(layer).feed_forward.experts for layer in range(61)]
    assert experts[:3] == [None] * 3
    assert all(
        each is not None and (each.count, each.groups, each.shared_intermediate) == (256, 8, 2048)
        for each in experts[3:]
    )


def test_kimi_k2_is_one_of_the_family() -> None:
    assert spec_of(model_type="kimi_k2", n_group=1, topk_group=1).family == "deepseek_v3"


@pytest.mark.parametrize(
    ("changes", "feature"),
    [
        ({"attention_bias": True}, "attention_bias"),
        ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "proportional"}}, "'proportional' beside a latent"),
        ({"model_type": "deepseek_v2", "topk_method": "noaux_tc"}, "topk_method 'noaux_tc'"),
        ({"model_type": "deepseek_v2", "mlp_bias": True}, "mlp_bias"),
        ({"model_type": "glm4_moe_lite", "mlp_layer_types": ["dense"] * 3}, "mlp_layer_types"),
    ],
)
def test_what_is_not_there_is_refused_by_name(changes: Mapping[str, object], feature: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=feature):
        spec_of(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kv_lora_rank": 0}, "out of range"),
        ({"kv_lora_rank": 500}, "latent attention of sizes that do not go together"),
        ({"qk_nope_head_dim": 120}, "no multiple of 16"),
        ({"qk_rope_head_dim": 63}, "rotat"),
        ({"q_lora_rank": -1}, "rank of queries"),
        ({"n_group": 7}, "not of one size"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changes: Mapping[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        spec_of(**changes)


@pytest.mark.parametrize(
    ("key", "value", "feature"),
    [
        ("attention.temperature_scale", 0.1, "attention.temperature_scale"),
        ("expert_gating_func", 3, "expert_gating_func"),
    ],
)
def test_gguf_files_of_others_are_refused(tmp_path: Path, key: str, value: object, feature: str) -> None:
    model = FAMILIES["deepseek_v3"]
    assert model.gguf is not None
    folder = write_family(tmp_path / "folder", model)
    other = type(model)(
        config=model.config,
        gguf=type(model.gguf)(
            architecture=model.gguf.architecture,
            keys={**model.gguf.keys, key: value},
            converted=model.gguf.converted,
        ),
    )
    with pytest.raises(ModelUnsupportedError, match=feature):
        read_headers(write_family_gguf(tmp_path / "model.gguf", folder, other))


def test_layers_that_predict_further_tokens_are_left_out(tmp_path: Path) -> None:
    """The last layer of the folder stands for one."""
    folder = write_family(tmp_path / "whole", FAMILIES["deepseek_v3"])
    config = read_json(folder / "config.json")
    layers = config["num_hidden_layers"]
    assert isinstance(layers, int)
    shorter = {**config, "num_hidden_layers": layers - 1}
    headers = read_headers(copied(folder, tmp_path / "told", shorter))
    assert headers.spec.layers == layers - 1


def test_a_matrix_of_other_heads_is_refused(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "whole", FAMILIES["deepseek_v3"])
    config = {**read_json(folder / "config.json"), "v_head_dim": 32}
    write_json(folder / "config.json", config)
    with pytest.raises(ModelCorruptError, match=rf"shape \[{HEADS * 80}, 32\], but .* \[{HEADS * 64}, 32\]|o_proj"):
        read_headers(folder)
