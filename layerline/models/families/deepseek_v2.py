"""DeepSeek-V2: attention with a latent, and after the first layers experts beside shared ones."""

from dataclasses import replace

from layerline.models.config_experts import dense_first, grouped_experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    feed_forward_from_config,
    model_from_config,
    unsupported,
)
from layerline.models.config_latent import latent_from_config
from layerline.models.expert_rules import ExpertNames
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
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
    feed_forwards = dense_first(config, dense, lambda: _sparse(config, dense), missing=0)
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in feed_forwards]
    return model_from_config(config, NAME, layers, context_tokens)


def _sparse(config: ConfigFields, dense: FeedForwardSpec) -> FeedForwardSpec:
    """A group of experts is as good as its best one."""
    method = config.text("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise unsupported(config, f"topk_method {method!r}")
    groups = None if method == "greedy" else (config.integer("n_group"), config.integer("topk_group"))
    sparse = grouped_experts_from_config(
        config, dense, count=64, chosen=None, width=1407, scale=1.0, shared=2, scoring="softmax", groups=groups
    )
    assert sparse.experts is not None, "it is of experts"
    return sparse if groups is None else replace(sparse, experts=replace(sparse.experts, group_best=1))


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
