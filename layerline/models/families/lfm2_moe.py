"""LFM2 with experts in all layers but the first few."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import ConfigFields, feed_forward_from_config, layer_count
from layerline.models.expert_rules import ExpertNames, expert_tensors
from layerline.models.families import lfm2
from layerline.models.family import Family
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf
from layerline.models.gguf_fields import GgufModel
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule

NAME = "lfm2_moe"
NAMES = ExpertNames(
    router="feed_forward.gate.weight",
    choice_bias="feed_forward.expert_bias",
    expert="feed_forward.experts.{e}",
    gate="w1",
    up="w3",
    down="w2",
    stacks=(("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj"),),
)


def from_config(config: ConfigFields) -> ModelSpec:
    dense, first = feed_forward_from_config(config), config.integer("num_dense_layers", 2)
    experts = experts_from_config(
        config, count=32, chosen=4, scoring="sigmoid", normalised=config.flag("norm_topk_prob", True)
    )
    experts = replace(
        experts,
        scale=config.positive("routed_scaling_factor", 1.0),
        choice_bias=config.flag("use_expert_bias", True),
    )
    sparse = replace(dense, intermediate=config.integer("moe_intermediate_size", 1792), experts=experts)
    feed_forwards = [dense if layer < first else sparse for layer in range(layer_count(config))]
    return lfm2.model_of(config, NAME, feed_forwards)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    sparse = experts_from_gguf(gguf, scoring="sigmoid", normalised=True)
    return lfm2.model_of_gguf(gguf, NAME, sparse_layers_of_gguf(gguf, sparse))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return (*lfm2.layer_tensors(layer), *expert_tensors(layer.feed_forward, NAMES))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="lfm2moe",
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    end_tensors=lfm2.END_TENSORS,
)
