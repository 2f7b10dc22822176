"""OLMoE: Llama with experts, whose queries, and whose keys, are normed as one before they are rotated."""

from dataclasses import replace

from layerline.models.config_experts import experts_from_config
from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    head_dim_from_config,
    layer_count,
    model_from_config,
    unsupported,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.expert_rules import with_experts
from layerline.models.family import Family
from layerline.models.gguf_experts import experts_from_gguf
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec

NAME = "olmoe"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    if config.raw("clip_qkv") is not None:
        raise unsupported(config, "queries, keys and values that are clipped (clip_qkv)")
    context_tokens = config.integer("max_position_embeddings", 4096)
    head_dim = head_dim_from_config(config)
    attention = attention_from_config(
        config,
        head_dim=head_dim,
        rope=rope_from_config(config, context_tokens),
        qkv_bias=config.flag("attention_bias", False),
    )
    layer = LayerSpec(
        mixer=replace(attention, qk_norm="rows", output_bias=attention.qkv_bias),
        feed_forward=replace(
            feed_forward_from_config(config),
            experts=experts_from_config(config, count=64, chosen=8, normalised=config.flag("norm_topk_prob", False)),
        ),
    )
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens, norm_epsilon=1e-5)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf, experts=True)
    refuse_window(gguf)
    attention = replace(attention_from_gguf(gguf), qk_norm="rows")
    layer = LayerSpec(mixer=attention, feed_forward=experts_from_gguf(gguf))
    return model_from_gguf(gguf, NAME, [layer] * layer_count_of_gguf(gguf))


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=with_experts
)
