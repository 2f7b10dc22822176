"""Gemma: Llama with GELU by tanh, embeddings scaled by the root of the hidden size, and norms stored from zero."""

import math

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import ENDS, decoder_tensors
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
from layerline.models.tensor_rules import TensorRule, with_norms_from_zero

NAME = "gemma"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config, "attention_bias", "use_bidirectional_attention")
    context_tokens = config.integer("max_position_embeddings", 8192)
    attention = attention_from_config(
        config,
        kv_heads=16,
        head_dim=256,
        rope=rope_from_config(config, context_tokens),
    )
    # What the first files call "gelu" was always meant to be its approximation by tanh.
    is_legacy = config.text("hidden_act", "gelu") == "gelu"
    feed_forward = feed_forward_from_config(
        config, activation="hidden_activation" if is_legacy else "hidden_act", default="gelu_pytorch_tanh"
    )
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward)
    return model_from_config(
        config,
        NAME,
        [layer] * layer_count(config),
        context_tokens,
        tied_output=True,
        embedding_scale=math.sqrt(config.integer("hidden_size")),
    )


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    refuse_window(gguf)
    layer = LayerSpec(mixer=attention_from_gguf(gguf), feed_forward=feed_forward_from_gguf(gguf, "gelu_tanh"))
    embedding_scale = math.sqrt(gguf.integer("embedding_length"))
    return model_from_gguf(gguf, NAME, [layer] * layer_count_of_gguf(gguf), embedding_scale=embedding_scale)


def score_scale_from_gguf(gguf: GgufModel, layers_of_27b: int) -> float:
    """Of Gemma 2 and 3, whose files do not say it: only of the 27B it does not go by the size of a head."""
    head_dim = attention_from_gguf(gguf).head_dim
    if layer_count_of_gguf(gguf) == layers_of_27b:
        head_dim = gguf.integer("embedding_length") // gguf.integer("attention.head_count")
    return 1.0 / math.sqrt(head_dim)


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_norms_from_zero(decoder_tensors(layer))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=NAME,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    end_tensors=with_norms_from_zero(ENDS),
)
