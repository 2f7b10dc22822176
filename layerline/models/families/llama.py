"""Llama and what follows its config and names to the letter: Llama 2 and 3, SmolLM2, TinyLlama; in GGUF Mistral too."""

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    even_head_dim,
    layer_count,
    model_from_config,
    unsupported,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.family import Family
from layerline.models.gguf_fields import GgufModel, attention_from_gguf, check_gguf, model_from_gguf, window_from_gguf
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, decoder_tensors, with_rope_pairs

NAME = "llama"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config, "attention_bias", "mlp_bias")
    context_tokens, heads = config.integer("max_position_embeddings", 2048), config.integer("num_attention_heads")
    if config.has("sliding_window") and window_from_config(config, context_tokens):
        raise unsupported(config, "a sliding window")
    even = even_head_dim(config)
    attention = attention_from_config(
        config,
        kv_heads=config.nullable_integer("num_key_value_heads", missing=heads, null=heads),
        head_dim=config.nullable_integer("head_dim", missing=even, null=even),
        rope=rope_from_config(config, context_tokens),
    )
    return model_from_config(config, NAME, [attention] * layer_count(config), context_tokens)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    return model_from_gguf(gguf, NAME, attention_from_gguf(gguf, window_tokens=window_from_gguf(gguf)))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_rope_pairs(decoder_tensors(layer), "q", "k")


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
