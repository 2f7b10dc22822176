"""Qwen3.5 with experts: Qwen3.5 whose layers choose a few of many small feed-forwards, beside one that is shared."""

from dataclasses import replace

from layerline.models.config_delta_net import context_from_config, hybrid_layers
from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import ConfigFields, feed_forward_from_config, layer_count, model_from_config
from layerline.models.decoder_rules import ENDS
from layerline.models.delta_net_rules import qwen3_5_tensors
from layerline.models.family import Family
from layerline.models.gguf_delta_net import sparse_hybrid_of_gguf
from layerline.models.gguf_fields import GgufModel
from layerline.models.spec import ModelSpec
from layerline.models.tensor_rules import with_norms_from_zero

NAME = "qwen3_5_moe_text"


def from_config(config: ConfigFields) -> ModelSpec:
    width = config.integer("moe_intermediate_size", 512)
    experts = replace(
        experts_from_config(config, count=256, chosen=8, normalised=True),
        shared_intermediate=config.integer("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )
    dense = feed_forward_from_config(config.with_missing({"intermediate_size": width}))
    sparse = replace(dense, intermediate=width, experts=experts)
    layers = hybrid_layers(config, [sparse] * layer_count(config), kv_heads=2)
    return model_from_config(config, NAME, layers, context_from_config(config))


def from_gguf(gguf: GgufModel) -> ModelSpec:
    return sparse_hybrid_of_gguf(gguf, NAME, tiled=True)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="qwen35moe",
    from_gguf=from_gguf,
    layer_tensors=qwen3_5_tensors,
    end_tensors=with_norms_from_zero(ENDS),
    has_further_layers=True,
)
