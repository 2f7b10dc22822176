"""GLM-4 of 2025 (GLM-4-0414, GLM-Z1): glm with norms around attention and feed-forward."""

from layerline.models.config_fields import ConfigFields, feed_forward_from_config, layer_count, model_from_config
from layerline.models.families import glm
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    refuse_window,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, renamed

NAME = "glm4"
NORMS = {
    "attention_after_norm": "post_self_attn_layernorm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "ffn_after_norm": "post_mlp_layernorm.weight",
}


def from_config(config: ConfigFields) -> ModelSpec:
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    layer = LayerSpec(
        mixer=glm.glm_attention(config, context_tokens),
        feed_forward=feed_forward_from_config(config),
        norms="around",
    )
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens, norm_epsilon=glm.EPSILON)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    refuse_window(gguf)
    has_bias = "blk.0.attn_q.bias" in gguf.tensors
    attention = attention_from_gguf(gguf, qkv_bias=has_bias, may_be_partial=True, interleaved=True)
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_gguf(gguf), norms="around")
    return model_from_gguf(gguf, NAME, [layer] * layer_count_of_gguf(gguf))


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return renamed(glm.layer_tensors(layer), NORMS)


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
