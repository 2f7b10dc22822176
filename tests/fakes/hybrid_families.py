"""Models of families of which some layers are recurrent, a row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fakes.expert_families import EXPERTS, EXPERTS_IN_GGUF, granite_experts
from tests.fakes.made_models import HEAD_DIM, HIDDEN, KV_HEADS, LAYERS, FamilyModel, InGguf, Rows, conv_squeezed

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


MAMBA_HEADS = 8
_GRANITE: dict[str, object] = {
    "model_type": "granitemoehybrid",
    "layer_types": ["mamba", "mamba", "attention", "mamba"],
    "mamba_n_heads": MAMBA_HEADS,
    "mamba_d_state": 24,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.3,
    "logits_scaling": 2.5,
    "shared_intermediate_size": 72,
}
_GRANITE_IN_GGUF: dict[str, object] = {
    "attention.head_count_kv": [0, 0, KV_HEADS, 0],
    "ssm.conv_kernel": 4,
    "ssm.state_size": 24,
    "ssm.group_count": 1,
    "ssm.time_step_rank": MAMBA_HEADS,
    "ssm.inner_size": 2 * HIDDEN,
    "embedding_scale": 3.0,
    "residual_scale": 0.4,
    "attention.scale": 0.3,
    "logit_scale": 2.5,
    "rope.scaling.finetuned": False,
}


def granite_converted(name: str, rows: Rows, groups: int = 1) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: a row for each head, the norm of each group, gate and up apart."""
    if name.endswith("A_log"):
        return {name: -np.exp(rows)[:, None]}
    if name.endswith("mamba.D"):
        return {name: rows[:, None]}
    if name.endswith("dt_bias"):
        return {name.replace("dt_bias", "dt_proj.bias"): rows}
    if name.endswith("mamba.norm.weight"):
        return {name: rows.reshape(groups, -1)}
    if "conv1d.weight" in name:
        return {name: rows.squeeze()}
    return granite_experts(name, rows)


def granite_dense_converted(name: str, rows: Rows) -> Mapping[str, Rows]:
    """The same of a model without experts, whose shared one is its feed-forward; it has two groups."""
    return {
        own.replace("shared_expert.", ""): part
        for own, part in _with_shared_mlp(name, rows, granite_converted(name, rows, groups=2)).items()
    }


def granite_sparse_converted(name: str, rows: Rows) -> Mapping[str, Rows]:
    """The same of a model with experts."""
    return _with_shared_mlp(name, rows, granite_converted(name, rows))


def _with_shared_mlp(name: str, rows: Rows, others: Mapping[str, Rows]) -> Mapping[str, Rows]:
    layer, found, part = name.partition(".shared_mlp.")
    if not found:
        return others
    if part == "output_linear.weight":
        return {f"{layer}.mlp.shared_expert.down_proj.weight": rows}
    gate, up = np.split(rows, 2)
    return {f"{layer}.mlp.shared_expert.gate_proj.weight": gate, f"{layer}.mlp.shared_expert.up_proj.weight": up}


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
    "granitemoehybrid": FamilyModel(
        config={**_GRANITE, "num_local_experts": 6, "position_embedding_type": "nope"},
        gguf=InGguf(
            architecture="granitehybrid",
            keys={
                **_GRANITE_IN_GGUF,
                "expert_count": 6,
                "expert_used_count": 2,
                "expert_shared_feed_forward_length": 72,
            },
            converted=granite_sparse_converted,
        ),
        most_ranks=1,
    ),
    "granitemoehybrid without experts": FamilyModel(
        config={
            **_GRANITE,
            "num_local_experts": 0,
            "position_embedding_type": "rope",
            "mamba_n_groups": 2,
            "tie_word_embeddings": True,
        },
        gguf=InGguf(
            architecture="granitehybrid",
            keys={
                **_GRANITE_IN_GGUF,
                "feed_forward_length": 72,
                "ssm.group_count": 2,
                "rope.scaling.finetuned": True,
            },
            converted=granite_dense_converted,
        ),
    ),
    "granitemoehybrid of few taps": FamilyModel(
        config={
            **_GRANITE,
            "num_local_experts": 0,
            "layer_types": ["linear_attention", "full_attention"] * (LAYERS // 2),
            "mamba_n_heads": 6,
            "mamba_d_head": 32,
            "mamba_expand": 3,
            "mamba_n_groups": 3,
            "mamba_d_conv": 2,
            "mamba_conv_bias": False,
            "attention_bias": True,
        },
    ),
}
