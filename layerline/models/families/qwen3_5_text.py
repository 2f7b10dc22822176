"""Qwen3.5, dense: gated delta nets in most layers, and gated attention in the others."""

from layerline.models.config_delta_net import context_from_config, hybrid_layers
from layerline.models.config_fields import ConfigFields, feed_forward_from_config, layer_count, model_from_config
from layerline.models.decoder_rules import ENDS
from layerline.models.delta_net_rules import qwen3_5_tensors
from layerline.models.family import Family
from layerline.models.gguf_delta_net import hybrid_layers_of_gguf
from layerline.models.gguf_fields import (
    GgufModel,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
)
from layerline.models.spec import ModelSpec
from layerline.models.tensor_rules import with_norms_from_zero

NAME = "qwen3_5_text"


def from_config(config: ConfigFields) -> ModelSpec:
    feed_forward = feed_forward_from_config(config.with_missing({"intermediate_size": 12288}))
    layers = hybrid_layers(config, [feed_forward] * layer_count(config), kv_heads=4)
    return model_from_config(config, NAME, layers, context_from_config(config))


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    feed_forwards = [feed_forward_from_gguf(gguf)] * layer_count_of_gguf(gguf)
    return model_from_gguf(gguf, NAME, hybrid_layers_of_gguf(gguf, feed_forwards, tiled=True))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="qwen35",
    from_gguf=from_gguf,
    layer_tensors=qwen3_5_tensors,
    end_tensors=with_norms_from_zero(ENDS),
    has_further_layers=True,
)
