"""Seed-OSS: Llama with heads of a size of their own, and biases on queries, keys and values."""

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
    plain_model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, renamed_in_gguf

NAME = "seed_oss"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 19)
    attention = attention_from_config(
        config,
        kv_heads=8,
        head_dim=128,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("attention_bias", True),
    )
    layer = LayerSpec(
        mixer=replace(attention, output_bias=config.flag("attention_out_bias", False)),
        feed_forward=feed_forward_from_config(config, bias=config.flag("mlp_bias", False)),
    )
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    refuse_window(gguf)
    attention = attention_from_gguf(gguf, qkv_bias="blk.0.attn_q.bias" in gguf.tensors)
    return plain_model_from_gguf(gguf, NAME, attention)


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return renamed_in_gguf(decoder_tensors(layer), {"ffn_norm": "post_attention_norm.weight"})


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
