"""The tensors that a decoder consists of: their canonical names, their sides, and where either container has them.

Most families have these under the same names. One that has not gives rules of its own (`Family.layer_tensors`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerline.models.spec import LayerSpec, ModelSpec

# Sides of tensors, in the words of `side_lengths`.
VOCABULARY, HIDDEN, FEED_FORWARD = "vocabulary", "hidden", "feed_forward"
QUERIES, KEYS, VALUES, ATTENDED, HEAD = "queries", "keys", "values", "attended", "head"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a container has a tensor: in the stored one called `name`, below rows of the sides `after`."""

    name: str
    after: tuple[str, ...] = ()
    rope_pairs: bool = False  # the rows of a head are in GGUF-llama order, pair by pair


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRule:
    """A tensor of the model; in names `{n}` stands for the layer of one that every layer has."""

    name: str
    sides: tuple[str, ...]
    safetensors: Place
    gguf: Place


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
        HEAD: layer.attention.head_dim,
    }


def whole_rule(name: str, safetensors: str, gguf: str, *sides: str) -> TensorRule:
    """A tensor that either container has by itself."""
    return TensorRule(name=name, sides=sides, safetensors=Place(name=safetensors), gguf=Place(name=gguf))


def layer_rule(name: str, safetensors: str, gguf: str, *sides: str) -> TensorRule:
    """The same of a layer, by its names there."""
    return whole_rule(f"layers.{{n}}.{name}", f"model.layers.{{n}}.{safetensors}", f"blk.{{n}}.{gguf}", *sides)


def with_rope_pairs(rules: Sequence[TensorRule], *names: str) -> tuple[TensorRule, ...]:
    """The same rules, the tensors called `names` in a layer having their rows in GGUF-llama order in a GGUF file."""
    marked = {f"layers.{{n}}.{name}" for name in names}
    return tuple(
        dataclasses.replace(rule, gguf=dataclasses.replace(rule.gguf, rope_pairs=True)) if rule.name in marked else rule
        for rule in rules
    )


def stacked(
    rules: Sequence[TensorRule], safetensors: str, gguf: str, after: Mapping[str, tuple[str, ...]]
) -> tuple[TensorRule, ...]:
    """The same rules, the tensors of a layer that `after` names lying in one, each below rows of these sides."""
    one = layer_rule("", safetensors, gguf)

    def placed(rule: TensorRule) -> TensorRule:
        sides = after.get(rule.name.rpartition(".")[2])
        if sides is None:
            return rule
        safetensors, gguf = (dataclasses.replace(place, after=sides) for place in (one.safetensors, one.gguf))
        return dataclasses.replace(rule, safetensors=safetensors, gguf=gguf)

    return tuple(placed(rule) for rule in rules)


ENDS = (
    whole_rule("embedding", "model.embed_tokens.weight", "token_embd.weight", VOCABULARY, HIDDEN),
    whole_rule("final_norm", "model.norm.weight", "output_norm.weight", HIDDEN),
    whole_rule("output", "lm_head.weight", "output.weight", VOCABULARY, HIDDEN),
)

_LAYER = (
    layer_rule("attention_norm", "input_layernorm.weight", "attn_norm.weight", HIDDEN),
    layer_rule("q", "self_attn.q_proj.weight", "attn_q.weight", QUERIES, HIDDEN),
    layer_rule("k", "self_attn.k_proj.weight", "attn_k.weight", KEYS, HIDDEN),
    layer_rule("v", "self_attn.v_proj.weight", "attn_v.weight", VALUES, HIDDEN),
    layer_rule("attention_output", "self_attn.o_proj.weight", "attn_output.weight", HIDDEN, ATTENDED),
    layer_rule("ffn_norm", "post_attention_layernorm.weight", "ffn_norm.weight", HIDDEN),
    layer_rule("gate", "mlp.gate_proj.weight", "ffn_gate.weight", FEED_FORWARD, HIDDEN),
    layer_rule("up", "mlp.up_proj.weight", "ffn_up.weight", FEED_FORWARD, HIDDEN),
    layer_rule("down", "mlp.down_proj.weight", "ffn_down.weight", HIDDEN, FEED_FORWARD),
)

_QKV_BIASES = (
    layer_rule("q_bias", "self_attn.q_proj.bias", "attn_q.bias", QUERIES),
    layer_rule("k_bias", "self_attn.k_proj.bias", "attn_k.bias", KEYS),
    layer_rule("v_bias", "self_attn.v_proj.bias", "attn_v.bias", VALUES),
)

_QK_NORMS = (
    layer_rule("q_norm", "self_attn.q_norm.weight", "attn_q_norm.weight", HEAD),
    layer_rule("k_norm", "self_attn.k_norm.weight", "attn_k_norm.weight", HEAD),
)


def decoder_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """The tensors of such a layer by the names that most families have."""
    biases = _QKV_BIASES if layer.attention.qkv_bias else ()
    return _LAYER + biases + (_QK_NORMS if layer.attention.qk_norm else ())
