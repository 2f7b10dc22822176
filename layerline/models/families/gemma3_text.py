"""Gemma 3: Gemma 2 without caps, with normed heads, and with another rotation in layers that have a window."""

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
from layerline.models.config_rope import has_layer_types, rope_from_config, rope_of_layer_type
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
from layerline.models.layer_kinds import FULL, SLIDING, every_nth_full, layers_of_kinds
from layerline.models.rope_spec import LARGEST_ROTARY, SMALLEST_ROTARY, RopeSpec
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import with_norms_from_zero

NAME, ARCHITECTURE = "gemma3_text", "gemma3"
FULL_EVERY = 6
THETA, THETA_IN_WINDOWS = 1000000.0, 10000.0
LAYERS_OF_27B = 62
SIZES_OF_4B = {"vocab_size": 262208, "num_attention_heads": 8}  # that of a multimodal model leaves them out


def from_config(config: ConfigFields) -> ModelSpec:
    config = config.with_missing(SIZES_OF_4B)
    check_config(config, "attention_bias", "use_bidirectional_attention")
    context_tokens, layers = config.integer("max_position_embeddings", 1 << 17), layer_count(config)
    attention = attention_from_config(
        config,
        kv_heads=4,
        head_dim=256,
        rope=None,
    )
    attention = replace(
        attention,
        qk_norm="heads",
        scale=config.positive("query_pre_attn_scalar", 256) ** -0.5,
        soft_cap=config.nullable_number("attn_logit_softcapping", None),
    )
    feed_forward = feed_forward_from_config(config, activation="hidden_activation", default="gelu_pytorch_tanh")
    window_tokens = window_from_config(config, context_tokens)
    full, sliding = (
        LayerSpec(
            mixer=replace(attention, rope=_rope(config, kind, context_tokens), window_tokens=window),
            feed_forward=feed_forward,
            norms="around",
        )
        for kind, window in ((FULL, 0), (SLIDING, window_tokens))
    )
    default = every_nth_full(layers, config.integer("sliding_window_pattern", FULL_EVERY))
    return model_from_config(
        config,
        NAME,
        layers_of_kinds(layer_types(config, default), full=full, sliding=sliding),
        context_tokens,
        tied_output=True,
        embedding_scale=math.sqrt(config.integer("hidden_size")),
        logit_cap=config.nullable_number("final_logit_softcapping", None),
    )


def _rope(config: ConfigFields, kind: str, context_tokens: int) -> RopeSpec | None:
    """Earlier configs have the settings of full layers where others have them, and of the rest the base alone."""
    theta = THETA_IN_WINDOWS if kind == SLIDING else THETA
    if has_layer_types(config):
        return rope_of_layer_type(config, context_tokens, kind, theta=theta)
    if kind == SLIDING:
        return RopeSpec(theta=config.between("rope_local_base_freq", SMALLEST_ROTARY, LARGEST_ROTARY, theta))
    return rope_from_config(config, context_tokens, theta=theta)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """The file does not say which layers have a window."""
    check_gguf(gguf)
    scale = score_scale_from_gguf(gguf, LAYERS_OF_27B)
    attention = replace(attention_from_gguf(gguf), qk_norm="heads", scale=scale)
    full = LayerSpec(mixer=attention, feed_forward=feed_forward_from_gguf(gguf, "gelu_tanh"), norms="around")
    rope = RopeSpec(theta=gguf.number("rope.freq_base_swa", THETA_IN_WINDOWS))
    sliding = replace(full, mixer=replace(attention, rope=rope, window_tokens=window_from_gguf(gguf)))
    kinds = every_nth_full(layer_count_of_gguf(gguf), FULL_EVERY)
    return model_from_gguf(
        gguf,
        NAME,
        layers_of_kinds(kinds, full=full, sliding=sliding),
        embedding_scale=math.sqrt(gguf.integer("embedding_length")),
    )


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=ARCHITECTURE,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    end_tensors=with_norms_from_zero(ENDS),
)
