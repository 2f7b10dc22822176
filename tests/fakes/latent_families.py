"""Models of families whose attention keeps a latent, a row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fakes.made_models import HEADS, FamilyModel, InGguf, Rows


def latent_apart(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: of each head what makes keys, transposed, and what makes values."""
    if not name.endswith("kv_b_proj.weight"):
        return {name: rows}
    keys, values = np.split(rows.reshape(HEADS, -1, rows.shape[1]), [32], axis=1)
    return {name.replace("kv_b", "k_b"): keys.transpose(0, 2, 1), name.replace("kv_b", "v_b"): values}


LATENT: dict[str, object] = {
    "num_key_value_heads": HEADS,
    "kv_lora_rank": 32,
    "q_lora_rank": 48,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 48,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "first_k_dense_replace": 1,
}
YARN_OF_DEEPSEEK: dict[str, object] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}
LATENT_IN_GGUF: dict[str, object] = {
    "leading_dense_block_count": 1,
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 32,
    "attention.q_lora_rank": 48,
    "attention.key_length": 48,
    "attention.value_length": 32,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 48,
    "rope.dimension_count": 16,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 40,
    "expert_shared_count": 1,
}
OLDER_LATENT_IN_GGUF: dict[str, object] = {
    **LATENT_IN_GGUF,
    "attention.head_count_kv": HEADS,
    "attention.value_length": 48,
    "attention.key_length_mla": None,
    "attention.value_length_mla": None,
}
GROUPS_IN_GGUF: dict[str, object] = {"expert_group_count": 4, "expert_group_used_count": 2}
YARN_IN_GGUF: dict[str, object] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32,
    "rope.scaling.yarn_log_multiplier": 0.0707,
}
LATENT_FAMILIES: dict[str, FamilyModel] = {
    "deepseek_v2": FamilyModel(
        config={
            "model_type": "deepseek_v2",
            **LATENT,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 2.5,
            "rope_parameters": YARN_OF_DEEPSEEK,
        },
        gguf=InGguf(
            architecture="deepseek2",
            keys={
                **OLDER_LATENT_IN_GGUF,
                **GROUPS_IN_GGUF,
                **YARN_IN_GGUF,
                "expert_shared_count": 2,
                "expert_weights_scale": 2.5,
            },
        ),
    ),
    "deepseek_v2 lite": FamilyModel(
        config={"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None, "n_shared_experts": 2},
    ),
    "deepseek_v3": FamilyModel(
        config={
            "model_type": "deepseek_v3",
            **LATENT,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "rope_parameters": YARN_OF_DEEPSEEK,
        },
        gguf=InGguf(
            architecture="deepseek2",
            keys={
                **LATENT_IN_GGUF,
                **GROUPS_IN_GGUF,
                **YARN_IN_GGUF,
                "expert_gating_func": 2,
                "expert_weights_scale": 2.5,
                "expert_weights_norm": True,
            },
            converted=latent_apart,
        ),
    ),
    "deepseek_v3 in halves": FamilyModel(
        config={
            "model_type": "deepseek_v3",
            **LATENT,
            "n_shared_experts": 1,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "rope_interleave": False,
            "rope_parameters": {**YARN_OF_DEEPSEEK, "mscale": 0.5},
        },
    ),
    "glm4_moe_lite": FamilyModel(
        config={"model_type": "glm4_moe_lite", **LATENT, "n_shared_experts": 1, "routed_scaling_factor": 1.8},
        gguf=InGguf(
            architecture="deepseek2",
            keys={
                **LATENT_IN_GGUF,
                "expert_gating_func": 2,
                "expert_weights_scale": 1.8,
                "expert_weights_norm": True,
            },
            converted=latent_apart,
        ),
    ),
}
