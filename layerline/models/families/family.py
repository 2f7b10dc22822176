"""What a family is: its names in either container, the tensors it consists of, and what it must not ask for.

A family is data. How the fields are read is the business of config_json and gguf_metadata.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.models.spec import LayerSpec, ModelSpec

# Sides of tensors, in the words of `side_lengths`.
VOCABULARY, HIDDEN, FEED_FORWARD = "vocabulary", "hidden", "feed_forward"
QUERIES, KEYS, VALUES, ATTENDED = "queries", "keys", "values", "attended"


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRule:
    """A tensor by its three names and its shape; `{n}` stands for the layer of one that every layer has."""

    name: str
    safetensors: str
    gguf: str
    sides: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A decoder family. `gguf_architecture` is empty if GGUF calls it by another family's name.

    `refused_flags` are those of config.json that must not be true. `windows`: layers may have a sliding window, which
    `window_flag` switches on; without such a flag it is on if its size is given. `gguf_rope_pairs` are canonical names
    (of a layer) whose rows GGUF holds pair by pair. `ignored` are patterns of tensors that say nothing which config or
    metadata does not.
    """

    name: str
    config_model_type: str
    tensors: tuple[TensorRule, ...]
    qkv_bias: bool
    gguf_architecture: str = ""
    gguf_rope_pairs: frozenset[str] = frozenset()
    refused_flags: tuple[str, ...] = ()
    windows: bool = False
    window_flag: str = ""
    ignored: tuple[str, ...] = ("*.rotary_emb.inv_freq", "rope_freqs.weight")


def side_lengths(spec: ModelSpec, layer: LayerSpec) -> dict[str, int]:
    """How long each side is in a model of that spec and in one of its layers."""
    return {
        VOCABULARY: spec.vocabulary,
        HIDDEN: spec.hidden,
        FEED_FORWARD: layer.feed_forward.intermediate,
        QUERIES: layer.attention.query_numbers,
        KEYS: layer.attention.key_numbers,
        VALUES: layer.attention.value_numbers,
        ATTENDED: layer.attention.output_numbers,
    }


def _whole(name: str, safetensors: str, gguf: str, *sides: str) -> TensorRule:
    return TensorRule(name=name, safetensors=safetensors, gguf=gguf, sides=sides)


def _layer(name: str, safetensors: str, gguf: str, *sides: str) -> TensorRule:
    return _whole(f"layers.{{n}}.{name}", f"model.layers.{{n}}.{safetensors}", f"blk.{{n}}.{gguf}", *sides)


DECODER_TENSORS = (
    _whole("embedding", "model.embed_tokens.weight", "token_embd.weight", VOCABULARY, HIDDEN),
    _whole("final_norm", "model.norm.weight", "output_norm.weight", HIDDEN),
    _whole("output", "lm_head.weight", "output.weight", VOCABULARY, HIDDEN),
    _layer("attention_norm", "input_layernorm.weight", "attn_norm.weight", HIDDEN),
    _layer("q", "self_attn.q_proj.weight", "attn_q.weight", QUERIES, HIDDEN),
    _layer("k", "self_attn.k_proj.weight", "attn_k.weight", KEYS, HIDDEN),
    _layer("v", "self_attn.v_proj.weight", "attn_v.weight", VALUES, HIDDEN),
    _layer("attention_output", "self_attn.o_proj.weight", "attn_output.weight", HIDDEN, ATTENDED),
    _layer("ffn_norm", "post_attention_layernorm.weight", "ffn_norm.weight", HIDDEN),
    _layer("gate", "mlp.gate_proj.weight", "ffn_gate.weight", FEED_FORWARD, HIDDEN),
    _layer("up", "mlp.up_proj.weight", "ffn_up.weight", FEED_FORWARD, HIDDEN),
    _layer("down", "mlp.down_proj.weight", "ffn_down.weight", HIDDEN, FEED_FORWARD),
)

QKV_BIASES = (
    _layer("q_bias", "self_attn.q_proj.bias", "attn_q.bias", QUERIES),
    _layer("k_bias", "self_attn.k_proj.bias", "attn_k.bias", KEYS),
    _layer("v_bias", "self_attn.v_proj.bias", "attn_v.bias", VALUES),
)
