"""Reading GGUF metadata as llama.cpp does: what several families have in common.

What the spec cannot express is refused by name, never ignored.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and `llama_model::load_hparams` of llama.cpp
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from layerline.errors import ModelUnsupportedError
from layerline.models.feed_forward_spec import Activation, FeedForwardSpec
from layerline.models.fields import Fields
from layerline.models.gguf_rope import GgufRope, RopeTensors
from layerline.models.spec import AttentionSpec, LayerSpec, ModelSpec, NormKind
from layerline.plan import MAX_LAYERS


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufModel:
    """What a GGUF file says of its model: metadata, the names of its tensors, and what those of its rotation hold."""

    metadata: Fields
    architecture: str
    tensors: Container[str]
    rope_tensors: RopeTensors

    def key(self, name: str) -> str:
        """The full name of one of the architecture's keys."""
        return f"{self.architecture}.{name}"

    def integer(self, name: str, default: int | None = None) -> int:
        """The whole number that the architecture's key `name` has."""
        return self.metadata.integer(self.key(name), default)

    def number(self, name: str, default: float) -> float:
        """The number over 0 that the architecture's key `name` has."""
        return self.metadata.positive(self.key(name), default)

    @property
    def rope(self) -> GgufRope:
        """Its rotary settings."""
        return GgufRope(self.metadata, self.architecture, self.rope_tensors)

    def unsupported(self, feature: str) -> ModelUnsupportedError:
        """The error for a model that asks for `feature`."""
        return ModelUnsupportedError(f"{self.metadata.where} asks for {feature}, which layerline cannot do.")


KV_HEADS = "attention.head_count_kv"


def check_gguf(gguf: GgufModel, *, experts: bool = False, by_layer: bool = False) -> None:
    """Refuses what no family here has, and what this one has not: `experts`, sizes that each layer has `by_layer`."""
    for key in ("attention.head_count", *(() if by_layer else (KV_HEADS, "feed_forward_length"))):
        if isinstance(gguf.metadata.raw(gguf.key(key)), list):
            raise gguf.unsupported(f"{key} that differs from layer to layer")
    if not experts and gguf.integer("expert_count", 0) > 0:
        raise gguf.unsupported("a mixture of experts")
    if not gguf.metadata.flag(gguf.key("attention.causal"), True):
        raise gguf.unsupported("attention that is not causal (attention.causal)")
    if gguf.metadata.flag("tokenizer.ggml.add_eos_token", False):
        raise gguf.unsupported("an end-of-sequence token after every prompt (tokenizer.ggml.add_eos_token)")


def attention_from_gguf(
    gguf: GgufModel,
    *,
    qkv_bias: bool = False,
    window_tokens: int = 0,
    may_be_partial: bool = False,
    interleaved: bool = False,
    kv_heads: int | None = None,
) -> AttentionSpec:
    """Attention with heads of one size; `may_be_partial` and `interleaved` are as `GgufRope.rope` has them.

    `kv_heads` is what `recurrent_layers` has found.
    """
    heads = gguf.integer("attention.head_count")
    head_dim = gguf.integer("attention.key_length", gguf.integer("embedding_length") // max(heads, 1))
    if gguf.integer("attention.value_length", head_dim) != head_dim:
        raise gguf.unsupported("values and keys of unlike length")
    return AttentionSpec(
        heads=heads,
        kv_heads=gguf.integer(KV_HEADS, heads) if kv_heads is None else kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        rope=gguf.rope.rope(head_dim, may_be_partial=may_be_partial, interleaved=interleaved),
        qkv_bias=qkv_bias,
        window_tokens=window_tokens,
    )


def integers_by_layer(gguf: GgufModel, name: str, layers: int) -> list[int]:
    """The whole numbers that the architecture's key `name` has for each layer, or one for all."""
    key = gguf.key(name)
    if not isinstance(gguf.metadata.raw(key), list):
        return [gguf.integer(name)] * layers
    numbers = gguf.metadata.list_of(int, key)
    if len(numbers) != layers:
        raise gguf.metadata.wrong(key, "a whole number for each layer")
    return numbers


def layer_count_of_gguf(gguf: GgufModel) -> int:
    """How many layers there are, checked before anything is made for each."""
    layers = gguf.integer("block_count")
    if not 0 < layers <= MAX_LAYERS:
        raise gguf.metadata.wrong(gguf.key("block_count"), f"from 1 to {MAX_LAYERS}")
    return layers


def recurrent_layers(gguf: GgufModel) -> tuple[list[bool], int]:
    """Of each layer whether it is recurrent: it has no key/value heads; and how many of these the others have."""
    counts = gguf.metadata.list_of(int, gguf.key(KV_HEADS))
    kv_heads = max(counts, default=0)
    if len(counts) != layer_count_of_gguf(gguf) or not set(counts) <= {0, kv_heads} or kv_heads == 0:
        raise gguf.unsupported(f"{KV_HEADS} that differs among the layers with attention")
    return [count == 0 for count in counts], kv_heads


def feed_forward_from_gguf(gguf: GgufModel, activation: Activation = "silu") -> FeedForwardSpec:
    """A dense feed-forward, with biases if the first layer has them."""
    return FeedForwardSpec(
        intermediate=gguf.integer("feed_forward_length"),
        activation=activation,
        bias="blk.0.ffn_gate.bias" in gguf.tensors,
    )


def model_from_gguf(
    gguf: GgufModel,
    family: str,
    layers: Sequence[LayerSpec],
    *,
    epsilon: str = "attention.layer_norm_rms_epsilon",
    norm: NormKind = "rms",
    embedding_scale: float = 1.0,
    logit_scale: float = 1.0,
    logit_cap: float = 0.0,
) -> ModelSpec:
    """The model of these layers, whose norms have what the file calls `epsilon`."""
    return ModelSpec.of(
        layers,
        family=family,
        hidden=gguf.integer("embedding_length"),
        vocabulary=len(gguf.metadata.list_of(str, "tokenizer.ggml.tokens")),
        context_tokens=gguf.integer("context_length"),
        norm_epsilon=gguf.metadata.positive(gguf.key(epsilon)),
        tied_output="output.weight" not in gguf.tensors,
        norm=norm,
        embedding_scale=embedding_scale,
        logit_scale=logit_scale,
        logit_cap=logit_cap,
    )


def plain_model_from_gguf(gguf: GgufModel, family: str, attention: AttentionSpec) -> ModelSpec:
    """The model of which every layer has that attention, and a dense feed-forward."""
    layer = LayerSpec(mixer=attention, feed_forward=feed_forward_from_gguf(gguf))
    return model_from_gguf(gguf, family, [layer] * layer_count_of_gguf(gguf))


def window_from_gguf(gguf: GgufModel) -> int:
    """The size of the sliding window; 0 if there is none or it is as long as the context."""
    window_tokens = gguf.integer("attention.sliding_window", 0)
    return window_tokens if 0 < window_tokens < gguf.integer("context_length") else 0


def refuse_window(gguf: GgufModel) -> None:
    """Where GGUF does not say in which layers the window is."""
    if window_from_gguf(gguf):
        raise gguf.unsupported("a sliding window without saying in which layers")
