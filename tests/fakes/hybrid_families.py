"""Models of families of which some layers are recurrent, a row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fakes.expert_families import EXPERTS, EXPERTS_IN_GGUF
from tests.fakes.made_models import HEAD_DIM, KV_HEADS, LAYERS, FamilyModel, InGguf, Rows, conv_squeezed

_CONVS = ["conv", "full_attention"] * (LAYERS // 2)
_KV_HEADS = [0, KV_HEADS] * (LAYERS // 2)  # as GGUF says which layers have attention
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 2, 4, 12, 16
_DELTA_NET: dict[str, object] = {
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": KEY_DIM,
    "linear_value_head_dim": VALUE_DIM,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 2,
}
_DELTA_NET_IN_GGUF: dict[str, object] = {
    "ssm.conv_kernel": 4,
    "ssm.state_size": KEY_DIM,
    "ssm.group_count": KEY_HEADS,
    "ssm.time_step_rank": VALUE_HEADS,
    "ssm.inner_size": VALUE_HEADS * VALUE_DIM,
    "full_attention_interval": 2,
    "rope.dimension_count": HEAD_DIM // 4,
}
_SHARED = {"shared_expert_intermediate_size": 72}
_SHARED_IN_GGUF = {**EXPERTS_IN_GGUF, "expert_shared_feed_forward_length": 72}


def qwen3_next_converted(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: the rows of key heads apart, and what is stored as the model uses it."""
    if name.endswith("A_log"):
        return {f"{name}": -np.exp(rows)}
    if name.endswith("dt_bias"):
        return {name.replace("dt_bias", "dt_proj.bias"): rows}
    if "conv1d" in name or name.endswith("shared_expert_gate.weight"):
        return {name: rows.squeeze()}
    if "in_proj_qkvz" in name:
        grouped = rows.reshape(KEY_HEADS, -1, rows.shape[-1])
        values = VALUE_HEADS // KEY_HEADS * VALUE_DIM
        ends = np.cumsum([KEY_DIM, KEY_DIM, values])
        q, k, v, z = (part.reshape(-1, rows.shape[-1]) for part in np.split(grouped, ends, axis=1))
        return {name.replace("qkvz", "qkv"): np.concatenate([q, k, v]), name.replace("qkvz", "z"): z}
    is_from_zero = name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")
    return {name: rows + 1 if is_from_zero else rows}


def qwen3_next_first_converted(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As the first converter did it: the rows of key heads together."""
    return {name: rows} if "in_proj_qkvz" in name else qwen3_next_converted(name, rows)


def tiled(rows: Rows, size: int) -> Rows:
    """Value heads of so many rows in the order in which each tile of them reads all key heads."""
    heads = rows.reshape(KEY_HEADS, VALUE_HEADS // KEY_HEADS, size, *rows.shape[1:])
    return heads.swapaxes(0, 1).reshape(rows.shape)


def qwen3_5_converted(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: as Qwen3-Next, value heads in tiles."""
    first = 2 * KEY_HEADS * KEY_DIM
    if "in_proj_qkv." in name or "conv1d" in name:
        rows = np.concatenate([rows[:first], tiled(rows[first:], VALUE_DIM)])
    elif "in_proj_z." in name:
        rows = tiled(rows, VALUE_DIM)
    elif name.endswith(("in_proj_b.weight", "in_proj_a.weight", "A_log", "dt_bias")):
        rows = tiled(rows, 1)
    elif "linear_attn.out_proj" in name:
        rows = np.ascontiguousarray(tiled(np.ascontiguousarray(rows.T), VALUE_DIM).T)
    return qwen3_next_converted(name, rows)


def _lfm2_moe_converted(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: experts are called without the name of the model that has them."""
    own = name.removeprefix("model.") if ".experts." in name else name
    return conv_squeezed(own.replace("expert_bias", "expert_bias.bias"), rows)


HYBRID_FAMILIES: dict[str, FamilyModel] = {
    "lfm2": FamilyModel(
        config={
            "model_type": "lfm2",
            "layer_types": _CONVS,
            "conv_L_cache": 3,
            "block_auto_adjust_ff_dim": False,
            "tie_embedding": True,
        },
        gguf=InGguf(
            architecture="lfm2",
            keys={"shortconv.l_cache": 3, "attention.head_count_kv": _KV_HEADS, "rope.freq_base": 1e6},
            converted=conv_squeezed,
        ),
    ),
    "lfm2_moe": FamilyModel(
        config={
            "model_type": "lfm2_moe",
            "tie_word_embeddings": True,
            "layer_types": _CONVS,
            "num_dense_layers": 1,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 48,
            "routed_scaling_factor": 1.0,
        },
        gguf=InGguf(
            architecture="lfm2moe",
            keys={
                "shortconv.l_cache": 3,
                "attention.head_count_kv": _KV_HEADS,
                "rope.freq_base": 1e6,
                "leading_dense_block_count": 1,
                "expert_count": 6,
                "expert_used_count": 2,
                "expert_feed_forward_length": 48,
                "expert_gating_func": 2,
            },
            converted=_lfm2_moe_converted,
        ),
    ),
    "lfm2 with biases": FamilyModel(
        config={
            "model_type": "lfm2",
            "layer_types": _CONVS,
            "conv_L_cache": 4,
            "conv_bias": True,
            "block_multiple_of": 32,
            "block_ffn_dim_multiplier": 1.5,
        },
    ),
    "qwen3_next": FamilyModel(
        config={"model_type": "qwen3_next", **_DELTA_NET, **EXPERTS, **_SHARED},
        gguf=InGguf(
            architecture="qwen3next",
            keys={**_DELTA_NET_IN_GGUF, **_SHARED_IN_GGUF},
            converted=qwen3_next_converted,
        ),
    ),
    "qwen3_next with dense layers": FamilyModel(
        config={
            "model_type": "qwen3_next",
            **_DELTA_NET,
            **EXPERTS,
            **_SHARED,
            "mlp_only_layers": [0],
            "decoder_sparse_step": 2,
            "norm_topk_prob": False,
            "attention_bias": True,
            "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
            "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5},
        },
    ),
    "qwen3_next as first converted": FamilyModel(
        config={
            "model_type": "qwen3_next",
            **_DELTA_NET,
            **EXPERTS,
            **_SHARED,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        },
        gguf=InGguf(
            architecture="qwen3next",
            keys={
                **_DELTA_NET_IN_GGUF,
                **_SHARED_IN_GGUF,
                "attention.recurrent_layers": [True, False, True, True],
            },
            converted=qwen3_next_first_converted,
        ),
    ),
    "qwen3_5_text": FamilyModel(
        config={"model_type": "qwen3_5_text", **_DELTA_NET},
        gguf=InGguf(architecture="qwen35", keys=_DELTA_NET_IN_GGUF, converted=qwen3_5_converted),
    ),
    "qwen3_5_text of single heads": FamilyModel(
        config={
            "model_type": "qwen3_5_text",
            **_DELTA_NET,
            "linear_num_value_heads": KEY_HEADS,
            "full_attention_interval": 4,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.25,
                "mrope_interleaved": True,
                "mrope_section": [1, 1, 0],
            },
        },
    ),
    "qwen3_5_moe_text": FamilyModel(
        config={"model_type": "qwen3_5_moe_text", **_DELTA_NET, **EXPERTS, **_SHARED},
        gguf=InGguf(
            architecture="qwen35moe",
            keys={**_DELTA_NET_IN_GGUF, **_SHARED_IN_GGUF, "feed_forward_length": None},
            converted=qwen3_5_converted,
        ),
    ),
}
