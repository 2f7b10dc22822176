"""Gemma 4: Gemma 3 with heads of another size in full layers, whose values may be their keys, normed values, and a
number by which each layer multiplies the residual; perhaps with experts beside the dense feed-forward, or with an
input of each layer's own of the token and last layers that read the keys and values of earlier ones.

In GGUF the dense feed-forward of a layer with experts is called like any dense one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    layer_types,
    model_from_config,
    unsupported,
    window_from_config,
)
from layerline.models.config_rope import rope_of_layer_type
from layerline.models.decoder_rules import KEPT
from layerline.models.expert_rules import GGUF_LAYER, ExpertNames, with_experts
from layerline.models.family import Family
from layerline.models.feed_forward_spec import ExpertsSpec, FeedForwardSpec
from layerline.models.gguf_fields import GgufModel
from layerline.models.gguf_gemma4 import model_of_gguf
from layerline.models.layer_kinds import FULL, SLIDING, every_nth_full, with_shared_pages
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.models.tensor_rules import EXPERTS, HIDDEN, Place, TensorRule, layer_rule

NAME, UNIFIED, ARCHITECTURE = "gemma4_text", "gemma4_unified_text", "gemma4"
FULL_EVERY = 6
_UNSAID = {
    "vocab_size": 262144,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 30,
    "num_attention_heads": 8,
}
_ROTATIONS = {
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}
_SAID_BY_LAYER, _BY_LAYER = "per_layer_config", ("head_dim", "num_key_value_heads")
_NAMES = ExpertNames(
    router="router.proj.weight",
    expert="experts.{e}",
    stacks=(("experts.gate_up_proj", "experts.down_proj"),),
    shared="mlp",
)
_BRANCH_NORMS = (
    layer_rule("router_norm", "router.scale", "ffn_gate_inp.scale", HIDDEN),
    layer_rule("experts_norm", "pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight", HIDDEN),
    layer_rule("experts_after_norm", "post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight", HIDDEN),
    layer_rule("shared_after_norm", "post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight", HIDDEN),
)
_EXPERT_SCALES = (layer_rule("expert_scales", "router.per_expert_scale", "ffn_down_exps.scale", EXPERTS),)
_DENSE_IN_GGUF = {
    f"layers.{{n}}.shared.{part}": Place(name=f"{GGUF_LAYER}ffn_{part}.weight") for part in ("gate", "up", "down")
}


def from_config(config: ConfigFields) -> ModelSpec:
    config, is_unified = config.with_missing(_UNSAID), config.text("model_type", NAME) == UNIFIED
    check_config(config, "attention_bias", may_differ=True)
    if config.raw("use_bidirectional_attention") == "all":
        raise unsupported(config, "attention that is not causal (use_bidirectional_attention)")
    if not config.raw("rope_parameters"):
        config = config.replaced({"rope_parameters": _ROTATIONS})
    token_input = config.nullable_integer("hidden_size_per_layer_input", missing=0 if is_unified else 256, null=0)
    vocabulary = config.integer("vocab_size")
    if token_input and config.integer("vocab_size_per_layer_input", 262144) != vocabulary:
        raise unsupported(config, "a vocab_size_per_layer_input that is not its vocab_size")
    context_tokens = config.integer("max_position_embeddings", 1 << (18 if is_unified else 17))
    window_tokens = window_from_config(config, context_tokens, missing=1024 if is_unified else 512)
    kinds, feed_forward = _kinds(config), _feed_forward(config)
    said = _said_by_layer(config)
    mixers = [_attention(config, said(layer), kind, context_tokens, window_tokens) for layer, kind in enumerate(kinds)]
    shared = config.integer("num_kv_shared_layers", 0)
    try:
        sharing = with_shared_pages(mixers, kinds, shared)
    except ValueError as error:
        raise config.wrong("num_kv_shared_layers", str(error)) from error
    wide = feed_forward
    if config.flag("use_double_wide_mlp", False):
        wide = _of_width(feed_forward, 2 * config.integer("intermediate_size"))
    layers = [
        LayerSpec(
            mixer=mixer,
            feed_forward=feed_forward if mixer.source is None else wide,
            norms="around",
            output_scale=True,
            token_input=token_input,
        )
        for mixer in sharing
    ]
    return model_from_config(
        config,
        NAME,
        layers,
        context_tokens,
        tied_output=True,
        embedding_scale=math.sqrt(config.integer("hidden_size")),
        logit_cap=config.nullable_number("final_logit_softcapping", None),
    )


def _kinds(config: ConfigFields) -> Sequence[str]:
    """The last layer is a full one, whatever the config says."""
    return [*layer_types(config, every_nth_full(layer_count(config), FULL_EVERY))[:-1], FULL]


def _said_by_layer(config: ConfigFields) -> Callable[[int], ConfigFields | None]:
    """What is said of each layer by itself; None if all is said of kinds of layers.

    transformers writes the numbers of layers with as many digits as the last of them has.
    """
    if config.raw(_SAID_BY_LAYER) is None:
        return lambda _: None
    section = config.section(_SAID_BY_LAYER)
    if wrong := [name for name in section.names() if not name.isdecimal()]:
        raise section.wrong(min(wrong), "called by the number of a layer")
    said = {int(name): section.section(name) for name in section.names()}
    return lambda layer: said.get(layer, ConfigFields({}, section.where))


def _attention(
    config: ConfigFields, said: ConfigFields | None, kind: str, context_tokens: int, window_tokens: int
) -> AttentionSpec:
    plain = attention_from_config(config, kv_heads=4, head_dim=256, rope=None)
    is_full, keys_as_values = kind == FULL, config.flag("attention_k_eq_v", False)
    head_dim, kv_heads = plain.head_dim, plain.kv_heads
    if said is not None:
        if unknown := set(said.names()) - set(_BY_LAYER):
            raise unsupported(config, f"a {_SAID_BY_LAYER} with {min(unknown)}")
        head_dim, kv_heads = said.integer(_BY_LAYER[0], head_dim), said.integer(_BY_LAYER[1], kv_heads)
    elif is_full:
        head_dim = config.integer("global_head_dim", 512)
        if keys_as_values:
            kv_heads = config.nullable_integer("num_global_key_value_heads", missing=kv_heads, null=kv_heads)
    theta = 1000000.0 if is_full else 10000.0
    return replace(
        plain,
        head_dim=head_dim,
        value_dim=head_dim,
        kv_heads=kv_heads,
        rope=rope_of_layer_type(config, context_tokens, kind, head_dim=head_dim if is_full else None, theta=theta),
        qk_norm="heads",
        scale=1.0,
        value_norm=True,
        keys_as_values=keys_as_values and is_full,
        window_tokens=0 if is_full else window_tokens,
    )


def _feed_forward(config: ConfigFields) -> FeedForwardSpec:
    dense = feed_forward_from_config(config, activation="hidden_activation", default="gelu_pytorch_tanh")
    if not config.flag("enable_moe_block", False):
        return dense
    experts = ExpertsSpec(
        count=config.integer("num_experts"),
        chosen=config.integer("top_k_experts"),
        scoring="softmax",
        normalised=True,
        shared_intermediate=dense.intermediate,
        apart=True,
        expert_scales=True,
    )
    return replace(dense, intermediate=config.integer("moe_intermediate_size"), experts=experts)


def _of_width(feed_forward: FeedForwardSpec, width: int) -> FeedForwardSpec:
    """The same with a dense feed-forward of that width, be it alone or beside experts."""
    if feed_forward.experts is None:
        return replace(feed_forward, intermediate=width)
    return replace(feed_forward, experts=replace(feed_forward.experts, shared_intermediate=width))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    rules = with_experts(layer, _NAMES)
    experts = layer.feed_forward.experts
    if experts is None:
        return rules
    return (
        *(replace(rule, gguf=_DENSE_IN_GGUF.get(rule.name, rule.gguf)) for rule in rules),
        *_BRANCH_NORMS,
        *(_EXPERT_SCALES if experts.expert_scales else ()),
    )


def unread_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """Published files have matrices for keys and values also where those of another layer are read."""
    return () if layer.attention.source is None else KEPT


def from_gguf(gguf: GgufModel) -> ModelSpec:
    return model_of_gguf(gguf, NAME)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=ARCHITECTURE,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    unread_tensors=unread_tensors,
    text_parts=(UNIFIED,),
)
