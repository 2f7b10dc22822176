"""DeepSeek-V2: attention with a latent, and after the first layers experts beside shared ones."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    unsupported,
)
from layerline.models.config_latent import latent_experts_from_config, latent_from_config
from layerline.models.expert_rules import ExpertNames
from layerline.models.family import Family
from layerline.models.feed_forward_spec import ExpertsSpec
from layerline.models.gguf_fields import GgufModel, model_from_gguf
from layerline.models.gguf_latent import latent_from_gguf, latent_layers_from_gguf
from layerline.models.latent_rules import with_latent
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule

NAME = "deepseek_v2"
NAMES = ExpertNames(shared="mlp.shared_experts")


def from_config(config: ConfigFields) -> ModelSpec:
    context_tokens = config.integer("max_position_embeddings", 2048)
    attention = latent_from_config(config, context_tokens, interleaved=True)
    dense = feed_forward_from_config(config)
    first = config.integer("first_k_dense_replace", 0)
    sparse = dense
    if first < layer_count(config):
        sparse = latent_experts_from_config(
            config, dense, count=64, chosen=None, width=1407, shared=2, scale=1.0, scoring="softmax"
        )
        assert sparse.experts is not None, "it is of experts"
        sparse = replace(sparse, experts=_in_groups(config, sparse.experts))
    layers = [
        LayerSpec(attention=attention, feed_forward=dense if layer < first else sparse)
        for layer in range(layer_count(config))
    ]
    return model_from_config(config, NAME, layers, context_tokens)


def _in_groups(config: ConfigFields, experts: ExpertsSpec) -> ExpertsSpec:
    """A group is as good as its best expert."""
    method = config.text("topk_method", "greedy")
    if method == "greedy":
        return experts
    if method != "group_limited_greedy":
        raise unsupported(config, f"topk_method {method!r}")
    return replace(experts, groups=config.integer("n_group"), chosen_groups=config.integer("topk_group"), group_best=1)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """Of all families of this attention: they are one in GGUF."""
    attention = latent_from_gguf(gguf)
    return model_from_gguf(gguf, NAME, latent_layers_from_gguf(gguf, attention))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return with_latent(layer, NAMES)


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture="deepseek2",
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    has_further_layers=True,
)
