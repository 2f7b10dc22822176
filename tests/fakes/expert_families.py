"""Models of families with experts, a row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fakes.made_models import HEAD_DIM, WINDOWED, FamilyModel, InGguf, Rows, pairs_interleaved


def gate_as_vector(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: sides of 1 are left out."""
    return {name: rows.squeeze()}


def gpt_oss_experts(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: gate and up apart, and outputs as rows."""
    if name.endswith("sinks"):
        return {f"{name}.weight": rows}
    stack, _, part = name.partition(".experts.")
    if not part:
        return {name: rows}
    ending = ".bias" if part.endswith("_bias") else ".weight"
    own = rows if ending == ".bias" else rows.swapaxes(1, 2)
    if part.startswith("down"):
        return {f"{stack}.experts.down_proj{ending}": own}
    return {f"{stack}.experts.{half}_proj{ending}": own[:, first::2] for first, half in enumerate(("gate", "up"))}


def granite_experts(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: gate and up of all experts apart, and the rows of heads as Llama's."""
    for stack in ("block_sparse_moe.input_linear", "block_sparse_moe.experts.gate_up_proj"):
        if stack in name:
            layer, half = name.partition(".block_sparse_moe.")[0], rows.shape[1] // 2
            parts = {"gate": rows[:, :half], "up": rows[:, half:]}
            return {f"{layer}.mlp.experts.{part}_proj.weight": part_rows for part, part_rows in parts.items()}
    return pairs_interleaved(name, rows)


def llama4_experts(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: gate and up apart, and outputs as rows."""
    stack, _, part = name.partition(".experts.")
    if not part:
        return {name: rows}
    own = rows.swapaxes(1, 2)
    if part == "down_proj":
        return {f"{stack}.experts.down_proj.weight": own}
    halves = zip(("gate", "up"), np.split(own, 2, axis=1), strict=True)
    return {f"{stack}.experts.{half}_proj.weight": half_rows for half, half_rows in halves}


EXPERTS: dict[str, object] = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 40}
EXPERTS_IN_GGUF: dict[str, object] = {
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 40,
}
GPT_OSS: dict[str, object] = {
    "model_type": "gpt_oss",
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "sliding_window": 9,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 32,
    },
}
LLAMA4_ROPE: dict[str, object] = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 16.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 1.0,
    "original_max_position_embeddings": 32,
}
LLAMA4: dict[str, object] = {"model_type": "llama4_text", "num_local_experts": 6, "intermediate_size": 40}
EXPERT_FAMILIES: dict[str, FamilyModel] = {
    "mixtral": FamilyModel(
        config={"model_type": "mixtral", "num_local_experts": 5, "sliding_window": 9, "rope_theta": 10000.0}
    ),
    "mixtral as llama": FamilyModel(
        config={"model_type": "mixtral", "num_local_experts": 5, "rope_theta": 10000.0},
        gguf=InGguf(
            architecture="llama",
            keys={"expert_count": 5, "expert_used_count": 2},
            converted=pairs_interleaved,
        ),
    ),
    "qwen2_moe": FamilyModel(
        config={"model_type": "qwen2_moe", **EXPERTS, "shared_expert_intermediate_size": 72},
        gguf=InGguf(
            architecture="qwen2moe",
            keys={**EXPERTS_IN_GGUF, "expert_shared_feed_forward_length": 72},
            converted=gate_as_vector,
        ),
    ),
    "qwen2_moe with windows": FamilyModel(
        config={
            "model_type": "qwen2_moe",
            **EXPERTS,
            "shared_expert_intermediate_size": 72,
            "norm_topk_prob": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 3,
            "qkv_bias": False,
            "decoder_sparse_step": 2,
        },
    ),
    "qwen3_moe": FamilyModel(
        config={"model_type": "qwen3_moe", **EXPERTS, "norm_topk_prob": True},
        gguf=InGguf(architecture="qwen3moe", keys=EXPERTS_IN_GGUF),
    ),
    "qwen3_moe with dense layers": FamilyModel(
        config={"model_type": "qwen3_moe", **EXPERTS, "mlp_only_layers": [0, 2], "attention_bias": True},
    ),
    "olmoe": FamilyModel(
        config={"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": True},
        most_ranks=1,
    ),
    "olmoe as it is": FamilyModel(
        config={"model_type": "olmoe", "num_experts": 8, "num_experts_per_tok": 3},
        gguf=InGguf(architecture="olmoe", keys={"expert_count": 8, "expert_used_count": 3}),
        most_ranks=1,
    ),
    "granitemoe": FamilyModel(
        config={
            "model_type": "granitemoe",
            "num_local_experts": 6,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.3,
            "logits_scaling": 2.5,
        },
        gguf=InGguf(
            architecture="granitemoe",
            keys={
                "expert_count": 6,
                "expert_used_count": 2,
                "embedding_scale": 3.0,
                "residual_scale": 0.4,
                "attention.scale": 0.3,
                "logit_scale": 2.5,
            },
            converted=granite_experts,
        ),
    ),
    "gpt_oss": FamilyModel(config={**GPT_OSS, "layer_types": WINDOWED}),
    "gpt_oss in bounds": FamilyModel(
        config=GPT_OSS,
        gguf=InGguf(
            architecture="gpt-oss",
            keys={
                "expert_count": 6,
                "expert_used_count": 3,
                "expert_feed_forward_length": 96,
                "attention.sliding_window": 9,
                "rope.freq_base": 150000.0,
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 32,
            },
            converted=gpt_oss_experts,
        ),
    ),
    "llama4_text": FamilyModel(
        config={
            **LLAMA4,
            "intermediate_size_mlp": 72,
            "interleave_moe_layer_step": 2,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "attention_chunk_size": 9,
            "attn_scale": 0.4,
            "floor_scale": 8,
            "rope_parameters": LLAMA4_ROPE,
        }
    ),
    "llama4_text layer by layer": FamilyModel(
        config={
            **LLAMA4,
            "intermediate_size_mlp": 72,
            "moe_layers": [0, 1, 3],
            "no_rope_layers": [1, 0, 1, 0],
            "layer_types": ["full_attention", "chunked_attention", "chunked_attention", "full_attention"],
            "use_qk_norm": False,
            "attention_chunk_size": 16,
            "attn_temperature_tuning": False,
        }
    ),
    "llama4_text as in GGUF": FamilyModel(
        config={**LLAMA4, "intermediate_size_mlp": 72, "interleave_moe_layer_step": 2},
        gguf=InGguf(
            architecture="llama4",
            keys={
                "feed_forward_length": 72,
                "expert_count": 6,
                "expert_used_count": 1,
                "expert_feed_forward_length": 40,
                "interleave_moe_layer_step": 2,
                "rope.freq_base": 500000.0,
            },
            converted=llama4_experts,
        ),
    ),
    "minimax_m2": FamilyModel(
        config={
            "model_type": "minimax_m2",
            "num_local_experts": 8,
            "num_experts_per_tok": 3,
            "partial_rotary_factor": 0.5,
        },
        gguf=InGguf(
            architecture="minimax-m2",
            keys={
                "expert_count": 8,
                "expert_used_count": 3,
                "expert_feed_forward_length": 96,
                "rope.dimension_count": HEAD_DIM // 2,
                "rope.freq_base": 5000000.0,
            },
        ),
        most_ranks=1,
    ),
    "glm4_moe": FamilyModel(
        config={
            "model_type": "glm4_moe",
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
            "n_group": 4,
            "topk_group": 2,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "glm4_moe in one group": FamilyModel(
        config={
            "model_type": "glm4_moe",
            **EXPERTS,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "routed_scaling_factor": 1.5,
        },
        gguf=InGguf(
            architecture="glm4moe",
            keys={
                **EXPERTS_IN_GGUF,
                "rope.dimension_count": HEAD_DIM // 2,
                "expert_shared_count": 2,
                "expert_weights_scale": 1.5,
                "expert_weights_norm": True,
                "leading_dense_block_count": 1,
            },
        ),
    ),
}
