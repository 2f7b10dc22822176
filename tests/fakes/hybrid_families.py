"""Models of families of which some layers are recurrent, a row each."""

from __future__ import annotations

from tests.fakes.made_models import KV_HEADS, LAYERS, FamilyModel, InGguf, conv_squeezed

_CONVS = ["conv", "full_attention"] * (LAYERS // 2)
_KV_HEADS = [0, KV_HEADS] * (LAYERS // 2)  # as GGUF says which layers have attention

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
}
