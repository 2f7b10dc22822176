"""GLM-4.7-Flash: DeepSeek-V3 with other sizes, which says for each layer whether it has experts. In GGUF it is V2."""

from layerline.models.config_experts import grouped_experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    feed_forward_from_config,
    layer_count,
    model_from_config,
    unsupported,
)
from layerline.models.config_latent import latent_from_config
from layerline.models.families import deepseek_v2
from layerline.models.family import Family
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "glm4_moe_lite"
DENSE, SPARSE = "dense", "sparse"
_UNSAID = {"q_lora_rank": 768, "qk_nope_head_dim": 192, "v_head_dim": 256}  # where DeepSeek's are others


def from_config(config: ConfigFields) -> ModelSpec:
    context_tokens = config.integer("max_position_embeddings", 202752)
    is_interleaved = config.flag("rope_interleave", True)
    attention = latent_from_config(config.with_missing(_UNSAID), context_tokens, interleaved=is_interleaved)
    dense = feed_forward_from_config(config)
    sparse = grouped_experts_from_config(config, dense, count=64, chosen=4, width=1536, scale=1.8)
    feed_forwards = [dense if kind == DENSE else sparse for kind in _kinds(config)]
    layers = [LayerSpec(mixer=attention, feed_forward=each) for each in feed_forwards]
    return model_from_config(config, NAME, layers, context_tokens, norm_epsilon=1e-5)


def _kinds(config: ConfigFields) -> list[str]:
    """Of each layer; unless it is said, all but the first are of experts."""
    layers = layer_count(config)
    kinds = config.list_of(str, "mlp_layer_types") if "mlp_layer_types" in config else [DENSE] + [SPARSE] * (layers - 1)
    if len(kinds) != layers or not set(kinds) <= {DENSE, SPARSE}:
        raise unsupported(config, f"mlp_layer_types other than {DENSE} or {SPARSE} for each layer")
    return kinds


FAMILY = Family(
    model_type=NAME, from_config=from_config, layer_tensors=deepseek_v2.layer_tensors, has_further_layers=True
)
