"""Models of Gemma 4, a row each."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.fakes.made_models import HEAD_DIM, KV_HEADS, WINDOWED, FamilyModel, InGguf, Rows
from tests.fakes.tiny_tokenizer import tokens

GLOBAL_HEAD_DIM = 32
_SCALES = {"router.scale": "router.proj.scale", "router.per_expert_scale": "experts.down_proj.scale"}


def as_gemma4(name: str, rows: Rows) -> Mapping[str, Rows]:
    """As llama.cpp's converter does it: names of what has none of its own there."""
    if name.endswith("layer_scalar") or ".experts." in name:
        return {f"{name}.weight": rows}
    for ending, own in _SCALES.items():
        if name.endswith(ending):
            return {name.removesuffix(ending) + own: rows}
    return {name: rows}


DENSE: dict[str, object] = {
    "model_type": "gemma4_text",
    "tie_word_embeddings": True,
    "layer_types": WINDOWED,
    "sliding_window": 9,
    "global_head_dim": GLOBAL_HEAD_DIM,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 3.0,
}
KEYS: dict[str, object] = {
    "attention.sliding_window_pattern": [True, False, True, False],
    "attention.sliding_window": 9,
    "attention.shared_kv_layers": 0,
    "embedding_length_per_layer_input": 0,
    "attention.key_length": GLOBAL_HEAD_DIM,
    "attention.value_length": GLOBAL_HEAD_DIM,
    "attention.key_length_swa": HEAD_DIM,
    "attention.value_length_swa": HEAD_DIM,
    "attention.head_count_kv": [KV_HEADS, 1, KV_HEADS, 1],
    "rope.dimension_count": GLOBAL_HEAD_DIM,
    "rope.dimension_count_swa": HEAD_DIM,
    "rope.freq_base": 1000000.0,
    "rope.freq_base_swa": 10000.0,
    "final_logit_softcapping": 3.0,
}
EXPERTS: dict[str, object] = {
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 3,
    "moe_intermediate_size": 40,
}
EXPERTS_IN_GGUF: dict[str, object] = {
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 40,
}
# Of the 16 pairs of a full layer's head a quarter is turned.
TENSORS = {"rope_freqs.weight": np.array([1.0] * 4 + [1e30] * 12, np.float32)}


def in_gguf(**keys: object) -> InGguf:
    """The model as a file, with these keys beside KEYS."""
    return InGguf(architecture="gemma4", keys={**KEYS, **keys}, converted=as_gemma4, tensors=TENSORS)


# Six layers, of which the last three read the pages of layers 1 and 2.
SHARING: dict[str, object] = {
    **DENSE,
    "num_hidden_layers": 6,
    "layer_types": [*WINDOWED, "sliding_attention", "full_attention"],
    "attention_k_eq_v": False,
    "num_global_key_value_heads": None,
    "vocab_size_per_layer_input": len(tokens()),
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
}
SHARING_IN_GGUF: dict[str, object] = {
    "block_count": 6,
    "attention.sliding_window_pattern": [True, False] * 3,
    "attention.head_count_kv": KV_HEADS,
    "attention.shared_kv_layers": 3,
    "embedding_length_per_layer_input": 8,
    "feed_forward_length": [96] * 3 + [192] * 3,
}
GEMMA4_FAMILIES: dict[str, FamilyModel] = {
    "gemma4_text": FamilyModel(config=DENSE, gguf=in_gguf()),
    "gemma4_text with experts": FamilyModel(config={**DENSE, **EXPERTS}, gguf=in_gguf(**EXPERTS_IN_GGUF)),
    "gemma4_text with values": FamilyModel(
        config={**DENSE, "attention_k_eq_v": False, "num_global_key_value_heads": None},
        gguf=in_gguf(**{"attention.head_count_kv": KV_HEADS}),
    ),
    "gemma4_text with inputs": FamilyModel(config=SHARING, gguf=in_gguf(**SHARING_IN_GGUF)),
    "gemma4_text with one key": FamilyModel(config={**SHARING, "num_key_value_heads": 1, "use_double_wide_mlp": False}),
}
