"""Gemma 2: Gemma with norms around attention and feed-forward, scores and logits kept within a cap, and every second
layer with a window."""

import math
from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    layer_types,
    model_from_config,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import ENDS
from layerline.models.families.gemma import layer_tensors, score_scale_from_gguf
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    window_from_gguf,
)
from layerline.models.layer_kinds import FULL, SLIDING, windowed_layers
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import with_norms_from_zero

NAME = "gemma2"
LAYERS_OF_27B = 46


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config, "attention_bias", "use_bidirectional_attention")
    context_tokens, layers = config.integer("max_position_embeddings", 8192), layer_count(config)
    attention = attention_from_config(
        config,
        kv_heads=4,
        head_dim=256,
        rope=rope_from_config(config, context_tokens),
    )
    attention = replace(
        attention,
        scale=config.positive("query_pre_attn_scalar", 256) ** -0.5,
        soft_cap=config.nullable_number("attn_logit_softcapping", 50.0),
    )
    feed_forward = feed_forward_from_config(config, activation="hidden_activation", default="gelu_pytorch_tanh")
    layer, kinds = LayerSpec(mixer=attention, feed_forward=feed_forward, norms="around"), _alternating(layers)
    return model_from_config(
        config,
        NAME,
        windowed_layers(layer, layer_types(config, kinds), window_from_config(config, context_tokens)),
        context_tokens,
        tied_output=True,
        embedding_scale=math.sqrt(config.integer("hidden_size")),
        logit_cap=config.nullable_number("final_logit_softcapping", 30.0),
    )


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    layers = layer_count_of_gguf(gguf)
    attention = replace(
        attention_from_gguf(gguf),
        scale=score_scale_from_gguf(gguf, LAYERS_OF_27B),
        soft_cap=gguf.number("attn_logit_softcapping", 50.0),
    )
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_gguf(gguf, "gelu_tanh"), norms="around")
    return model_from_gguf(
        gguf,
        NAME,
        windowed_layers(layer, _alternating(layers), window_from_gguf(gguf)),
        embedding_scale=math.sqrt(gguf.integer("embedding_length")),
        logit_cap=gguf.number("final_logit_softcapping", 30.0),
    )


def _alternating(layers: int) -> list[str]:
    return [FULL if layer % 2 else SLIDING for layer in range(layers)]


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=NAME,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    end_tensors=with_norms_from_zero(ENDS),
)
