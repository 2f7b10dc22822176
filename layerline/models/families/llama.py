"""Llama and what follows its config and names to the letter: Llama 2 and 3, SmolLM2; in GGUF Mistral, Mixtral too."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    unsupported,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import with_experts
from layerline.models.family import Family
from layerline.models.gguf_experts import experts_from_gguf
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    plain_model_from_gguf,
    window_from_gguf,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, with_rope_pairs

NAME = "llama"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 2048)
    if window_from_config(config, context_tokens, missing=0):
        raise unsupported(config, "a sliding window")
    attention = attention_from_config(
        config,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("attention_bias", False),
    )
    layer = LayerSpec(
        mixer=replace(attention, output_bias=attention.qkv_bias),
        feed_forward=feed_forward_from_config(config, bias=config.flag("mlp_bias", False)),
    )
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True)
    attention = attention_from_gguf(gguf, qkv_bias="blk.0.attn_q.bias" in gguf.tensors)
    output_bias = "blk.0.attn_output.bias" in gguf.tensors
    attention = replace(attention, output_bias=output_bias, window_tokens=window_from_gguf(gguf))
    if not gguf.integer("expert_count", 0):
        return plain_model_from_gguf(gguf, NAME, attention)
    layer = LayerSpec(mixer=attention, feed_forward=experts_from_gguf(gguf, normalised=True))
    return model_from_gguf(gguf, NAME, [layer] * layer_count_of_gguf(gguf))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_rope_pairs(with_experts(layer), "q", "k", "q_bias", "k_bias")


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
