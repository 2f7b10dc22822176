"""Reading GGUF metadata as llama.cpp does: what several families have in common.

What the spec cannot express is refused by name, never ignored.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, and `llama_model::load_hparams` of llama.cpp
"""

from __future__ import annotations

from dataclasses import dataclass

from layerline.errors import ModelUnsupportedError
from layerline.models.fields import Fields
from layerline.models.gguf_rope import GgufRope, RopeTensors
from layerline.models.spec import AttentionSpec, FeedForwardSpec, LayerSpec, ModelSpec
from layerline.plan import MAX_LAYERS


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufModel:
    """What a GGUF file says of its model."""

    metadata: Fields
    architecture: str
    has_output: bool  # a matrix of its own, and not that of the embedding
    rope_tensors: RopeTensors

    def key(self, name: str) -> str:
        """The full name of one of the architecture's keys."""
        return f"{self.architecture}.{name}"

    def integer(self, name: str, default: int | None = None) -> int:
        """The whole number that the architecture's key `name` has."""
        return self.metadata.integer(self.key(name), default)

    @property
    def rope(self) -> GgufRope:
        """Its rotary settings."""
        return GgufRope(self.metadata, self.architecture, self.rope_tensors)

    def unsupported(self, feature: str) -> ModelUnsupportedError:
        """The error for a model that asks for `feature`."""
        return ModelUnsupportedError(f"{self.metadata.where} asks for {feature}, which layerline cannot do.")


def check_gguf(gguf: GgufModel) -> None:
    """Refuses what no family here has."""
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        if isinstance(gguf.metadata.raw(gguf.key(key)), list):
            raise gguf.unsupported(f"{key} that differs from layer to layer")
    if gguf.integer("expert_count", 0) > 0:
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
) -> AttentionSpec:
    """Attention with heads of one size; `may_be_partial` and `interleaved` are as `GgufRope.rope` has them."""
    heads = gguf.integer("attention.head_count")
    head_dim = gguf.integer("attention.key_length", gguf.integer("embedding_length") // max(heads, 1))
    if gguf.integer("attention.value_length", head_dim) != head_dim:
        raise gguf.unsupported("values and keys of unlike length")
    return AttentionSpec(
        heads=heads,
        kv_heads=gguf.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        value_dim=head_dim,
        rope=gguf.rope.rope(head_dim, may_be_partial=may_be_partial, interleaved=interleaved),
        qkv_bias=qkv_bias,
        window_tokens=window_tokens,
    )


def model_from_gguf(gguf: GgufModel, family: str, attention: AttentionSpec) -> ModelSpec:
    """The model of which every layer has that attention."""
    layers = gguf.integer("block_count")
    if not 0 < layers <= MAX_LAYERS:
        raise gguf.metadata.wrong(gguf.key("block_count"), f"from 1 to {MAX_LAYERS}")
    feed_forward = FeedForwardSpec(intermediate=gguf.integer("feed_forward_length"))
    return ModelSpec.of(
        [LayerSpec(attention=attention, feed_forward=feed_forward)] * layers,
        family=family,
        hidden=gguf.integer("embedding_length"),
        vocabulary=len(gguf.metadata.list_of(str, "tokenizer.ggml.tokens")),
        context_tokens=gguf.integer("context_length"),
        norm_epsilon=gguf.metadata.positive(gguf.key("attention.layer_norm_rms_epsilon")),
        tied_output=not gguf.has_output,
    )


def window_from_gguf(gguf: GgufModel) -> int:
    """The size of the sliding window; 0 if there is none or it is as long as the context."""
    window_tokens = gguf.integer("attention.sliding_window", 0)
    return window_tokens if 0 < window_tokens < gguf.integer("context_length") else 0


def refuse_window(gguf: GgufModel) -> None:
    """Where GGUF does not say in which layers the window is."""
    if window_from_gguf(gguf):
        raise gguf.unsupported("a sliding window without saying in which layers")
