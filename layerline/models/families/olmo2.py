"""OLMo 2: norms after attention and feed-forward instead of before, and one norm each for all queries and all keys."""

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
from layerline.models.layer_kinds import every_nth_full, windowed_layers
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "olmo2"
FULL_EVERY = 4  # in a file that has a window, which makes it an OLMo 3


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 2048)
    attention = attention_from_config(
        config,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("attention_bias", False),
    )
    attention = replace(attention, output_bias=attention.qkv_bias, qk_norm="rows")
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_config(config), norms="after")
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens, norm_epsilon=1e-5)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """GGUF has OLMo 3 under the same name: then with a window in three of four layers."""
    check_gguf(gguf)
    attention, window_tokens = replace(attention_from_gguf(gguf), qk_norm="rows"), window_from_gguf(gguf)
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_gguf(gguf), norms="after")
    kinds = every_nth_full(layer_count_of_gguf(gguf), FULL_EVERY)
    return model_from_gguf(gguf, NAME, windowed_layers(layer, kinds, window_tokens))


FAMILY = Family(model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf)
