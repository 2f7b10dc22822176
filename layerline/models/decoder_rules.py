"""The tensors that a decoder consists of, by the names that most families have.

A family that has other names, or more tensors, makes rules of its own of these (`Family.layer_tensors`).
"""

from __future__ import annotations

import dataclasses

from layerline.models.spec import AttentionSpec, LayerSpec
from layerline.models.tensor_rules import (
    ATTENDED,
    FEED_FORWARD,
    HEAD,
    HEADS,
    HIDDEN,
    KEYS,
    ONE,
    QUERIES,
    TOKEN_INPUT,
    TOKEN_INPUTS,
    VALUES,
    VOCABULARY,
    Place,
    TensorRule,
    layer_rule,
    whole_rule,
)

ENDS = (
    whole_rule("embedding", "model.embed_tokens.weight", "token_embd.weight", VOCABULARY, HIDDEN),
    whole_rule("final_norm", "model.norm.weight", "output_norm.weight", HIDDEN),
    whole_rule("output", "lm_head.weight", "output.weight", VOCABULARY, HIDDEN),
)

_AFTER_OTHERS = {QUERIES: (), KEYS: (QUERIES,), VALUES: (QUERIES, KEYS)}  # in one stack of all three


def _may_be_stacked(rule: TensorRule, stack: str) -> TensorRule:
    """That of q, k or v, which some GGUF files have in one."""
    place = Place(name=f"blk.{{n}}.{stack}", after=_AFTER_OTHERS[rule.sides[0]])
    return dataclasses.replace(rule, otherwise=(place,))


TOKEN_TABLE, TOKEN_PROJECTION, TOKEN_NORM = (
    whole_rule(
        "token_table", "model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", VOCABULARY, TOKEN_INPUTS
    ),
    whole_rule(
        "token_projection",
        "model.per_layer_model_projection.weight",
        "per_layer_model_proj.weight",
        TOKEN_INPUTS,
        HIDDEN,
    ),
    whole_rule("token_norm", "model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", TOKEN_INPUT),
)
OF_TOKEN_INPUTS = (TOKEN_TABLE, TOKEN_PROJECTION, TOKEN_NORM)

_QKV = (
    layer_rule("q", "self_attn.q_proj.weight", "attn_q.weight", QUERIES, HIDDEN),
    layer_rule("k", "self_attn.k_proj.weight", "attn_k.weight", KEYS, HIDDEN),
    layer_rule("v", "self_attn.v_proj.weight", "attn_v.weight", VALUES, HIDDEN),
)
_MATRICES = (
    *(_may_be_stacked(rule, "attn_qkv.weight") for rule in _QKV),
    layer_rule("attention_output", "self_attn.o_proj.weight", "attn_output.weight", HIDDEN, ATTENDED),
)
_DENSE = (
    layer_rule("gate", "mlp.gate_proj.weight", "ffn_gate.weight", FEED_FORWARD, HIDDEN),
    layer_rule("up", "mlp.up_proj.weight", "ffn_up.weight", FEED_FORWARD, HIDDEN),
    layer_rule("down", "mlp.down_proj.weight", "ffn_down.weight", HIDDEN, FEED_FORWARD),
)

_ATTENTION_NORM = layer_rule("attention_norm", "input_layernorm.weight", "attn_norm.weight", HIDDEN)
_FFN_NORM = layer_rule("ffn_norm", "post_attention_layernorm.weight", "ffn_norm.weight", HIDDEN)
_FFN_NORM_OF_AROUND = layer_rule("ffn_norm", "pre_feedforward_layernorm.weight", "ffn_norm.weight", HIDDEN)
_NORMS_AFTER = (
    layer_rule("attention_after_norm", "post_attention_layernorm.weight", "post_attention_norm.weight", HIDDEN),
    layer_rule("ffn_after_norm", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", HIDDEN),
)
_NORMS = {
    "before": (_ATTENTION_NORM, _FFN_NORM),
    "after": _NORMS_AFTER,
    "around": (_ATTENTION_NORM, _FFN_NORM_OF_AROUND, *_NORMS_AFTER),
}

_QKV_BIASES = tuple(
    _may_be_stacked(rule, "attn_qkv.bias")
    for rule in (
        layer_rule("q_bias", "self_attn.q_proj.bias", "attn_q.bias", QUERIES),
        layer_rule("k_bias", "self_attn.k_proj.bias", "attn_k.bias", KEYS),
        layer_rule("v_bias", "self_attn.v_proj.bias", "attn_v.bias", VALUES),
    )
)
_OF_TOKEN_INPUT = (
    layer_rule("token_gate", "per_layer_input_gate.weight", "inp_gate.weight", TOKEN_INPUT, HIDDEN),
    layer_rule("token_output", "per_layer_projection.weight", "proj.weight", HIDDEN, TOKEN_INPUT),
    layer_rule("token_after_norm", "post_per_layer_input_norm.weight", "post_norm.weight", HIDDEN),
)
_OUTPUT_SCALE = (layer_rule("output_scale", "layer_scalar", "layer_output_scale.weight", ONE),)
_SINKS = (layer_rule("sinks", "self_attn.sinks", "attn_sinks.weight", HEADS),)
_OUTPUT_BIAS = (layer_rule("attention_output_bias", "self_attn.o_proj.bias", "attn_output.bias", HIDDEN),)
_FFN_BIASES = (
    layer_rule("gate_bias", "mlp.gate_proj.bias", "ffn_gate.bias", FEED_FORWARD),
    layer_rule("up_bias", "mlp.up_proj.bias", "ffn_up.bias", FEED_FORWARD),
    layer_rule("down_bias", "mlp.down_proj.bias", "ffn_down.bias", HIDDEN),
)

_QK_NORMS = {
    "none": (),
    "turned_heads": (),
    "heads": (
        layer_rule("q_norm", "self_attn.q_norm.weight", "attn_q_norm.weight", HEAD),
        layer_rule("k_norm", "self_attn.k_norm.weight", "attn_k_norm.weight", HEAD),
    ),
    "rows": (
        layer_rule("q_norm", "self_attn.q_norm.weight", "attn_q_norm.weight", QUERIES),
        layer_rule("k_norm", "self_attn.k_norm.weight", "attn_k_norm.weight", KEYS),
    ),
}

KEPT = (*_MATRICES[1:3], _QK_NORMS["heads"][1])
"""What makes keys and values; a layer that reads those of another has none of it."""


def decoder_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """The tensors of such a layer by the names that most families have.

    Without those of experts, and of what a recurrent layer has between its norms (`recurrent_rules`).
    """
    norms, is_dense = _NORMS[layer.norms], layer.feed_forward.experts is None
    return (
        *(norms[:1] if layer.parallel else norms),
        *(_DENSE if is_dense else ()),
        *(_FFN_BIASES if is_dense and layer.feed_forward.bias else ()),
        *(_attention_tensors(layer.attention) if layer.recurrent is None else ()),
        *(_OUTPUT_SCALE if layer.output_scale else ()),
        *(_OF_TOKEN_INPUT if layer.token_input else ()),
    )


def _attention_tensors(attention: AttentionSpec) -> tuple[TensorRule, ...]:
    rules = (
        *(rule for rule in _MATRICES if rule.sides[0] != VALUES or not attention.keys_as_values),
        *(_QKV_BIASES if attention.qkv_bias else ()),
        *(_OUTPUT_BIAS if attention.output_bias else ()),
        *(_SINKS if attention.sinks else ()),
        *_QK_NORMS[attention.qk_norm],
    )
    return rules if attention.source is None else tuple(rule for rule in rules if rule not in KEPT)
