"""Models of families of which some layers are recurrent, a row each."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.made_models import KV_HEADS, LAYERS, FamilyModel, InGguf, Rows, conv_squeezed

_CONVS = ["conv", "full_attention"] * (LAYERS // 2)
_KV_HEADS = [0, KV_HEADS] * (LAYERS // 2)  # as GGUF says which layers have attention


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
}
