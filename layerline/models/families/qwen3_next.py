"""Qwen3-Next: gated delta nets in most layers, gated attention in the others, and many small experts beside a shared
one.
"""

from dataclasses import replace

from layerline.models.config_delta_net import context_from_config, hybrid_layers
from layerline.models.config_experts import experts_from_config, sparse_layers
from layerline.models.config_fields import ConfigFields, feed_forward_from_config, model_from_config
from layerline.models.decoder_rules import ENDS
from layerline.models.delta_net_rules import qwen3_next_tensors
from layerline.models.family import Family
from layerline.models.gguf_delta_net import sparse_hybrid_of_gguf
from layerline.models.gguf_fields import GgufModel
from layerline.models.spec import ModelSpec
from layerline.models.tensor_rules import with_norms_from_zero

NAME = "qwen3_next"


def from_config(config: ConfigFields) -> ModelSpec:
    dense = feed_forward_from_config(config.with_missing({"intermediate_size": 5632}))
    experts = replace(
        experts_from_config(config, count=512, chosen=10, normalised=config.flag("norm_topk_prob", True)),
        shared_intermediate=config.integer("shared_expert_intermediate_size", 512),
        shared_gate=True,
    )
    sparse = replace(dense, intermediate=config.integer("moe_intermediate_size", 512), experts=experts)
    layers = hybrid_layers(config, sparse_layers(config, dense, sparse), kv_heads=2)
    return model_from_config(config, NAME, layers, context_from_config(config))


def from_gguf(gguf: GgufModel) -> ModelSpec:
    return sparse_hybrid_of_gguf(gguf, NAME, tiled=False)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="qwen3next",
    from_gguf=from_gguf,
    layer_tensors=qwen3_next_tensors,
    end_tensors=with_norms_from_zero(ENDS),
    has_further_layers=True,
)
