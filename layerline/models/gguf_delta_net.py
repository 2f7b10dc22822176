"""Reading layers with a gated delta net, and gated attention beside them, as GGUF files of Qwen's families say them.

Source: `llama_model_qwen3next` and `llama_model_qwen35` of llama.cpp, and what its converter writes for them.
"""

from __future__ import annotations

from dataclasses import replace

from layerline.models.feed_forward_spec import FeedForwardSpec
from layerline.models.gguf_experts import experts_from_gguf, sparse_layers_of_gguf, with_shared, without_further
from layerline.models.gguf_fields import GgufModel, attention_from_gguf, check_gguf, model_from_gguf, refuse_window
from layerline.models.recurrent import DeltaNetSpec
from layerline.models.spec import LayerSpec, ModelSpec

_RECURRENT, _INTERVAL = "attention.recurrent_layers", "full_attention_interval"


def sparse_hybrid_of_gguf(gguf: GgufModel, family: str, *, tiled: bool) -> ModelSpec:
    """The model of such layers with experts beside a shared one, of which llama.cpp makes weights 1 in all."""
    check_gguf(gguf, experts=True)
    width = gguf.integer("expert_shared_feed_forward_length", gguf.integer("feed_forward_length", 0))
    sparse = with_shared(gguf, experts_from_gguf(gguf, normalised=True), width)
    return model_from_gguf(gguf, family, hybrid_layers_of_gguf(gguf, sparse_layers_of_gguf(gguf, sparse), tiled=tiled))


def hybrid_layers_of_gguf(gguf: GgufModel, feed_forwards: list[FeedForwardSpec], *, tiled: bool) -> list[LayerSpec]:
    """A layer for each feed-forward, but for those that guess further tokens.

    `tiled`: the converter puts value heads in another order, so that each tile of them reads all key heads.
    """
    refuse_window(gguf)
    attention = attention_from_gguf(gguf, qkv_bias=False, may_be_partial=True)
    attention = replace(attention, qk_norm="heads", output_gate=True)
    delta_net = _delta_net(gguf, tiled=tiled)
    layers = [
        LayerSpec(mixer=delta_net if recurrent else attention, feed_forward=feed_forward)
        for recurrent, feed_forward in zip(_recurrent(gguf, len(feed_forwards)), feed_forwards, strict=True)
    ]
    return without_further(gguf, layers)


def _recurrent(gguf: GgufModel, layers: int) -> list[bool]:
    """Of each layer whether it is recurrent."""
    if gguf.metadata.raw(gguf.key(_RECURRENT)) is not None:
        recurrent = gguf.metadata.list_of(bool, gguf.key(_RECURRENT))
        if len(recurrent) != layers:
            raise gguf.metadata.wrong(gguf.key(_RECURRENT), f"a list for {layers} layers")
        return recurrent
    interval = gguf.integer(_INTERVAL, 4)
    if interval <= 0:
        raise gguf.metadata.wrong(gguf.key(_INTERVAL), "1 or more")
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def _delta_net(gguf: GgufModel, *, tiled: bool) -> DeltaNetSpec:
    value_heads, key_heads = gguf.integer("ssm.time_step_rank"), gguf.integer("ssm.group_count")
    value_numbers = gguf.integer("ssm.inner_size")
    if value_heads <= 0 or value_numbers % value_heads:
        raise gguf.metadata.wrong(gguf.key("ssm.inner_size"), f"a multiple of {value_heads} heads")
    return DeltaNetSpec(
        value_heads=value_heads,
        key_heads=key_heads,
        key_dim=gguf.integer("ssm.state_size"),
        value_dim=value_numbers // value_heads,
        taps=gguf.integer("ssm.conv_kernel"),
        tiled=tiled and value_heads != key_heads,
    )
