"""DeepSeek-V3 and R1, and Kimi K2: as V2, with experts chosen by sigmoids and a bias. In GGUF it is V2."""

from dataclasses import replace

from layerline.models.config_fields import ConfigFields, feed_forward_from_config, layer_count, model_from_config
from layerline.models.config_latent import latent_experts_from_config, latent_from_config
from layerline.models.families import deepseek_v2
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "deepseek_v3"


def from_config(config: ConfigFields) -> ModelSpec:
    context_tokens = config.integer("max_position_embeddings", 4096)
    attention = latent_from_config(config, context_tokens, interleaved=config.flag("rope_interleave", True))
    dense = feed_forward_from_config(config)
    first = config.integer("first_k_dense_replace", 3)
    sparse = _sparse(config, dense) if first < layer_count(config) else dense
    layers = [
        LayerSpec(attention=attention, feed_forward=dense if layer < first else sparse)
        for layer in range(layer_count(config))
    ]
    return model_from_config(config, NAME, layers, context_tokens)


def _sparse(config: ConfigFields, dense: FeedForwardSpec) -> FeedForwardSpec:
    sparse = latent_experts_from_config(
        config,
        dense,
        count=256,
        chosen=8,
        width=2048,
        shared=1,
        scale=2.5,
        scoring="sigmoid",
        normalised=config.flag("norm_topk_prob", True),
        choice_bias=True,
    )
    assert sparse.experts is not None, "it is of experts"
    groups, chosen_groups = config.integer("n_group", 8), config.integer("topk_group", 4)
    return replace(sparse, experts=replace(sparse.experts, groups=groups, chosen_groups=chosen_groups))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    layer_tensors=deepseek_v2.layer_tensors,
    has_further_layers=True,
    text_parts=("kimi_k2",),  # by itself too
)
