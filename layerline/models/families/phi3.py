"""Phi-3 and Phi-4: Llama that stores queries, keys and values in one matrix, and gate and up in another."""

from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    feed_forward_from_config,
    head_dim_from_config,
    layer_count,
    model_from_config,
    unsupported,
    window_from_config,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import decoder_tensors
from layerline.models.family import Family
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    plain_model_from_gguf,
    window_from_gguf,
)
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import FEED_FORWARD, KEYS, QUERIES, TensorRule, stacked

NAME = "phi3"


def from_config(config: ConfigFields) -> ModelSpec:
    check_config(config)
    context_tokens = config.integer("max_position_embeddings", 4096)
    head_dim = head_dim_from_config(config)
    rope = rope_from_config(config, context_tokens, head_dim=head_dim, original_tokens=4096)
    if rope.scaling not in ("none", "longrope"):
        raise unsupported(config, f"rope scaling {rope.scaling!r} of a {NAME} model")
    attention = attention_from_config(
        config,
        head_dim=head_dim,
        rope=rope,
    )
    window_tokens = window_from_config(config, context_tokens, missing=0)
    feed_forward = feed_forward_from_config(config)
    layer = LayerSpec(mixer=replace(attention, window_tokens=window_tokens), feed_forward=feed_forward)
    layers = [layer] * layer_count(config)
    return model_from_config(config, NAME, layers, context_tokens, norm_epsilon=1e-5)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    check_gguf(gguf)
    attention = attention_from_gguf(gguf, window_tokens=window_from_gguf(gguf), may_be_partial=True)
    return plain_model_from_gguf(gguf, NAME, attention)


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    sides = {"q": (), "k": (QUERIES,), "v": (QUERIES, KEYS)}
    rules = stacked(decoder_tensors(layer), "self_attn.qkv_proj.weight", "attn_qkv.weight", sides)
    return stacked(rules, "mlp.gate_up_proj.weight", "ffn_up.weight", {"gate": (), "up": (FEED_FORWARD,)})


FAMILY = Family(
    model_type=NAME, from_config=from_config, architecture=NAME, from_gguf=from_gguf, layer_tensors=layer_tensors
)
