"""Ministral 3, also the text part of Mistral 3: Mistral whose queries grow behind its original context."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config, rope_section
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    plain_model_from_gguf,
    window_from_gguf,
)
from layerline.models.query_growth import QueryGrowth
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, with_rope_pairs

NAME, ARCHITECTURE = "ministral3", "mistral3"
GROWTH, LENGTH = "llama_4_scaling_beta", "original_max_position_embeddings"


ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}  # of a config without any, as in transformers


def from_config(config: ConfigFields) -> ModelSpec:
    config = config if rope_section(config).names() else config.with_missing({"rope_parameters": ROPE})
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 1 << 18)
    attention = attention_from_config(
        config,
        kv_heads=8,
        head_dim=128,
        rope=rope_from_config(config, context_tokens),
    )
    attention = replace(
        attention,
        query_growth=_growth(rope_section(config), context_tokens),
        window_tokens=window_from_config(config, context_tokens, missing=0),
    )
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_config(config))
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens, norm_epsilon=1e-5)


def _growth(rope: ConfigFields, context_tokens: int) -> QueryGrowth | None:
    if not rope.raw(GROWTH):
        return None
    return QueryGrowth(factor=rope.positive(GROWTH), length=rope.integer(LENGTH, context_tokens))


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    attention = attention_from_gguf(gguf, window_tokens=window_from_gguf(gguf))
    key = gguf.key("attention.temperature_scale")
    if gguf.metadata.raw(key):
        length = gguf.integer("rope.scaling.original_context_length", gguf.integer("context_length"))
        growth = QueryGrowth(factor=gguf.metadata.positive(key), length=length)
        attention = replace(attention, query_growth=growth)
    return plain_model_from_gguf(gguf, NAME, attention)


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_rope_pairs(decoder_tensors(layer), "q", "k")


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=ARCHITECTURE,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
)
