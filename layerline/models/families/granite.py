"""Granite: Llama whose embeddings, branches, scores and logits are each multiplied by a number of the config."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, with_rope_pairs

NAME = "granite"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 2048)
    attention = attention_from_config(
        config,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, output_bias=attention.qkv_bias, scale=config.positive("attention_multiplier", 1.0))
    layer = LayerSpec(
        mixer=attention,
        feed_forward=feed_forward_from_config(config, bias=config.flag("mlp_bias", False)),
        branch_scale=config.positive("residual_multiplier", 1.0),
    )
    return model_from_config(
        config,
        NAME,
        [layer] * layer_count(config),
        context_tokens,
        embedding_scale=config.positive("embedding_multiplier", 1.0),
        logit_scale=1.0 / config.positive("logits_scaling", 1.0),
    )


def from_gguf(gguf: GgufModel, *, experts: bool = False) -> ModelSpec:
    check_gguf(gguf, experts=experts)
    refuse_window(gguf)
    attention = attention_from_gguf(gguf)
    layer = LayerSpec(
        mixer=replace(attention, scale=gguf.number("attention.scale", attention.score_scale)),
        feed_forward=feed_forward_from_gguf(gguf),
        branch_scale=gguf.number("residual_scale", 1.0),
    )
    return model_from_gguf(
        gguf,
        NAME,
        [layer] * layer_count_of_gguf(gguf),
        embedding_scale=gguf.number("embedding_scale", 1.0),
        logit_scale=1.0 / gguf.number("logit_scale", 1.0),
    )


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_rope_pairs(decoder_tensors(layer), "q", "k", "q_bias", "k_bias")


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
