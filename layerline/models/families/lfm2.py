"""LFM2: gated short convolutions in most layers, attention with normed heads in the others."""

from collections.abc import Sequence
from dataclasses import replace

from layerline.models.config_fields import (
    ConfigFields,
    attention_from_config,
    check_config,
    layer_count,
    model_from_config,
    unsupported,
)
from layerline.models.config_rope import rope_from_config
from layerline.models.decoder_rules import ENDS, decoder_tensors
from layerline.models.family import Family
from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_fields import (
    GgufModel,
    attention_from_gguf,
    check_gguf,
    feed_forward_from_gguf,
    layer_count_of_gguf,
    model_from_gguf,
    recurrent_layers,
    window_from_gguf,
)
from layerline.models.layer_kinds import FULL
from layerline.models.recurrent import ShortConvSpec
from layerline.models.recurrent_rules import short_conv_tensors
from layerline.models.spec import LayerSpec, ModelSpec
from layerline.models.tensor_rules import TensorRule, end_renamed, renamed

NAME = "lfm2"
CONV = "conv"
TIED, MULTIPLIER = "tie_embedding", "block_ffn_dim_multiplier"
NAMES = {
    "attention_norm": "operator_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "feed_forward.w1.weight",
    "up": "feed_forward.w3.weight",
    "down": "feed_forward.w2.weight",
    "q_norm": "self_attn.q_layernorm.weight",
    "k_norm": "self_attn.k_layernorm.weight",
}


def from_config(config: ConfigFields) -> ModelSpec:
    feed_forward = FeedForwardSpec(intermediate=_intermediate(config), activation="silu")
    return model_of(config, NAME, [feed_forward] * layer_count(config))


def model_of(config: ConfigFields, family: str, feed_forwards: Sequence[FeedForwardSpec]) -> ModelSpec:
    """The model of these feed-forwards beside convolutions and attention.

    Whether its ends are one tie_embedding says before tie_word_embeddings does.
    """
    check_config(config)
    if config.raw(TIED) is not None:
        config = config.replaced({"tie_word_embeddings": config.flag(TIED)})
    context_tokens = config.integer("max_position_embeddings", 128000)
    attention = attention_from_config(config, kv_heads=8, rope=rope_from_config(config, context_tokens, theta=1e6))
    conv = ShortConvSpec(
        channels=config.integer("hidden_size"),
        taps=config.integer("conv_L_cache", 3),
        bias=config.flag("conv_bias", False),
    )
    full = replace(attention, qk_norm="heads")
    layers = [
        LayerSpec(mixer=full if kind == FULL else conv, feed_forward=own)
        for kind, own in zip(_kinds(config), feed_forwards, strict=True)
    ]
    return model_from_config(
        config,
        family,
        layers,
        context_tokens,
        epsilon="norm_eps",
        norm_epsilon=1e-5,
        tied_output=True,
    )


def _kinds(config: ConfigFields) -> list[str]:
    layers = layer_count(config)
    if config.raw("layer_types") is None:
        full = range(layers) if config.raw("full_attn_idxs") is None else config.list_of(int, "full_attn_idxs")
        return [FULL if layer in full else CONV for layer in range(layers)]
    kinds = config.list_of(str, "layer_types")
    if len(kinds) != layers or not set(kinds) <= {FULL, CONV}:
        raise unsupported(config, f"layer_types other than {FULL} or {CONV} for each layer")
    return kinds


def _intermediate(config: ConfigFields) -> int:
    """What the checkpoints compute with is not what they say, unless they say so."""
    said = config.integer("block_ff_dim", config.integer("intermediate_size", 12288))
    if not config.flag("block_auto_adjust_ff_dim", True):
        return said
    shrunk = int(2 * said / 3)
    if config.has(MULTIPLIER) and config.raw(MULTIPLIER) is None:
        return shrunk
    unit = config.integer("block_multiple_of", 256)
    return unit * -(-int(config.positive(MULTIPLIER, 1.0) * shrunk) // unit)


def from_gguf(gguf: GgufModel) -> ModelSpec:
    return model_of_gguf(gguf, NAME, [feed_forward_from_gguf(gguf)] * layer_count_of_gguf(gguf))


def model_of_gguf(gguf: GgufModel, family: str, feed_forwards: Sequence[FeedForwardSpec]) -> ModelSpec:
    """The model of these feed-forwards, as a file has it."""
    check_gguf(gguf, experts=True, by_layer=True)
    if window_from_gguf(gguf):
        raise gguf.unsupported("a sliding window beside convolutions")
    recurrent, kv_heads = recurrent_layers(gguf)
    attention = replace(attention_from_gguf(gguf, kv_heads=kv_heads), qk_norm="heads")
    conv = ShortConvSpec(channels=gguf.integer("embedding_length"), taps=gguf.integer("shortconv.l_cache"))
    layers = [
        LayerSpec(mixer=conv if is_conv else attention, feed_forward=own)
        for is_conv, own in zip(recurrent, feed_forwards, strict=True)
    ]
    return model_from_gguf(gguf, family, layers)


def layer_tensors(layer: LayerSpec) -> tuple[TensorRule, ...]:
    """Those of a layer but for experts."""
    own = renamed(decoder_tensors(layer), NAMES)
    if isinstance(layer.recurrent, ShortConvSpec):
        return (*own, *short_conv_tensors(layer.recurrent))
    return renamed(own, {"attention_output": "self_attn.out_proj.weight"})


END_TENSORS = end_renamed(ENDS, "final_norm", "model.embedding_norm.weight", "token_embd_norm.weight")
FAMILY = Family(
    model_type=NAME,
    from_config=from_config,
    architecture=NAME,
    from_gguf=from_gguf,
    layer_tensors=layer_tensors,
    end_tensors=END_TENSORS,
)
