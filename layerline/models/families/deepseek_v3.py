"""DeepSeek-V3 and R1, and Kimi K2: as V2, with experts chosen by sigmoids and a bias. In GGUF it is V2."""

from layerline.models.config_experts import dense_first, grouped_experts_from_config
from layerline.models.config_fields import ConfigFields, feed_forward_from_config, model_from_config
from layerline.models.config_latent import latent_from_config
from layerline.models.families import deepseek_v2
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "deepseek_v3"


def from_config(config: ConfigFields) -> ModelSpec:
    context_tokens = config.integer("max_position_embeddings", 4096)
    attention = latent_from_config(config, context_tokens, interleaved=config.flag("rope_interleave", True))
    dense = feed_forward_from_config(config)
    feed_forwards = dense_first(config, dense, lambda: _sparse(config, dense), missing=3)
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in feed_forwards]
    return model_from_config(config, NAME, layers, context_tokens)


def _sparse(config: ConfigFields, dense: FeedForwardSpec) -> FeedForwardSpec:
    return grouped_experts_from_config(config, dense, count=256, chosen=8, width=2048, scale=2.5, groups=(8, 4))


FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    layer_tensors=deepseek_v2.layer_tensors,
    has_further_layers=True,
    text_parts=("kimi_k2",),  # by itself too
)
