"""Granite with experts, which a folder has in one matrix for all of them: gate and up of each, then the next one's."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import ConfigFields
from layerline.models.expert_rules import ExpertNames, with_experts
from layerline.models.families import granite
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_experts import experts_from_gguf
from layerline.models.gguf_fields import GgufModel
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, with_rope_pairs

NAME = "granitemoe"
NAMES = ExpertNames(
    router="block_sparse_moe.router.layer.weight",
    routers_otherwise=("block_sparse_moe.router.weight",),
    stacks=(
        ("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"),
        ("block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"),
    ),
)


def from_config(config: ConfigFields) -> ModelSpec:
    plain = granite.from_config(config)
    experts = experts_from_config(config, count=8, chosen=2, normalised=True)
    (layer,) = plain.kinds
    return _with(plain, replace(layer.feed_forward, experts=experts))


def from_gguf(gguf: GgufModel) -> ModelSpec:
    return _with(granite.from_gguf(gguf, experts=True), experts_from_gguf(gguf, normalised=True))


def _with(plain: ModelSpec, feed_forward: FeedForwardSpec) -> ModelSpec:
    """The same model with such a feed-forward in every layer."""
    (layer,) = plain.kinds
    return replace(plain, family=NAME, kinds=(replace(layer, feed_forward=feed_forward),))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_rope_pairs(with_experts(layer, NAMES), "q", "k", "q_bias", "k_bias")


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
