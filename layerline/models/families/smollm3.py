"""SmolLM3: Llama of which some layers do not rotate queries and keys."""

from collections.abc import Sequence
from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    unsupported,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    refuse_window,
)
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, with_rope_pairs

NAME = "smollm3"
PLAIN_EVERY = 4


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config, "use_sliding_window")
    context_tokens = config.integer("max_position_embeddings", 1 << 15)
    attention = attention_from_config(
        config,
        kv_heads=4,
        rope=rope_from_config(config, context_tokens, theta=2000000.0),
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, output_bias=attention.qkv_bias)
    feed_forward = feed_forward_from_config(config, bias=config.flag("mlp_bias", False))
    layers = _layers(attention, feed_forward, rotated_layers(config))
    return model_from_config(config, NAME, layers, context_tokens, tied_output=True)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    refuse_window(gguf)
    rotated = [(layer + 1) % PLAIN_EVERY != 0 for layer in range(layer_count_of_gguf(gguf))]
    return model_from_gguf(gguf, NAME, _layers(attention_from_gguf(gguf), feed_forward_from_gguf(gguf), rotated))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """llama.cpp's converter interleaves the rows of heads in layers that do not rotate them too."""
    return with_rope_pairs(decoder_tensors(layer), "q", "k", "q_bias", "k_bias")


def rotated_layers(config: ConfigFields) -> list[bool]:
    """Whether each layer rotates queries and keys: as it is listed, else all but the last of every few."""
    layers = layer_count(config)
    if not config.raw("no_rope_layers"):
        every = config.integer("no_rope_layer_interval", PLAIN_EVERY)
        if every < 1:
            raise config.wrong("no_rope_layer_interval", "at least 1")
        return [(layer + 1) % every != 0 for layer in range(layers)]
    rotated = config.list_of(int, "no_rope_layers")
    if len(rotated) < layers:
        raise unsupported(config, f"no_rope_layers for {len(rotated)} of {layers} layers")
    return [bool(each) for each in rotated[:layers]]


def _layers(attention: AttentionSpec, feed_forward: FeedForwardSpec, rotated: Sequence[bool]) -> list[LayerSpec]:
    plain = replace(attention, rope=None)
    return [LayerSpec(mixer=attention if own else plain, feed_forward=feed_forward) for own in rotated]


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
