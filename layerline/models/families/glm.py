"""GLM-4 of 2024, as `glm` in transformers: Llama that turns half of each head, pair by neighbouring pair."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    head_dim_from_config,
    layer_count,
    model_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    plain_model_from_gguf,
    refuse_window,
)
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec
from layerline.models.tensor_rules import FEED_FORWARD, TensorRule, stacked

NAME = "glm"
PARTIAL = "partial_rotary_factor"
EPSILON = 1.5625e-07


def from_config(config: ConfigFields) -> ModelSpec:
    context_tokens = config.integer("max_position_embeddings", 1 << 17)
    layer = LayerSpec(mixer=glm_attention(config, context_tokens), feed_forward=feed_forward_from_config(config))
    return model_from_config(config, NAME, [layer] * layer_count(config), context_tokens, norm_epsilon=EPSILON)


def glm_attention(config: ConfigFields, context_tokens: int) -> AttentionSpec:
    """Attention of this family and of glm4; half of each head is turned unless the config says otherwise."""
    check_config(config)
    head_dim = head_dim_from_config(config, 128)
    rope = rope_from_config(config, context_tokens, head_dim=head_dim)
    says_part = config.has(PARTIAL) or any(
        config.raw(key) and config.section(key).has(PARTIAL) for key in ("rope_parameters", "rope_scaling")
    )
    return attention_from_config(
        config,
        kv_heads=2,
        head_dim=head_dim,
        rope=replace(rope, interleaved=True, rotated=rope.rotated if says_part else head_dim // 2),
        qkv_bias=config.flag("attention_bias", True),
    )


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    return stacked(
        decoder_tensors(layer), "mlp.gate_up_proj.weight", "ffn_up.weight", {"gate": (), "up": (FEED_FORWARD,)}
    )


def from_gguf(gguf: GgufModel) -> ModelSpec:
    """Of the checkpoints before transformers had the family, too, which llama.cpp calls the same."""
    check_gguf(gguf)
    refuse_window(gguf)
    has_bias = "blk.0.attn_q.bias" in gguf.tensors or "blk.0.attn_qkv.bias" in gguf.tensors
    attention = attention_from_gguf(gguf, qkv_bias=has_bias, may_be_partial=True, interleaved=True)
    return plain_model_from_gguf(gguf, NAME, attention)


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture="chatglm", from_gguf=from_gguf, layer_tensors=layer_tensors
)
