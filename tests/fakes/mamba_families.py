"""Models of families with Mamba layers, a row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fakes.expert_families import granite_experts
from tests.fakes.made_models import HIDDEN, KV_HEADS, LAYERS, FamilyModel, InGguf, Rows

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


MAMBA_FAMILIES: dict[str, FamilyModel] = {
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
