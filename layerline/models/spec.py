"""What a decoder is, as data: layer by layer, and the ends. Free of torch, containers and families.

A model has few kinds of layers and says for each layer which kind it is; `ModelSpec.layer` is how everybody reads it. A
layer mixes tokens by attention, whose state is keys and values in pages, or is recurrent, with a state of one size in
a slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from layerline.checks import require
from layerline.models.feed_forward_spec import MOST_EXPERTS_IN_ALL, MOST_SIDE, FeedForwardSpec
from layerline.models.latent import PANEL_ROWS, LatentSpec
from layerline.models.query_growth import QueryGrowth
from layerline.models.recurrent import RecurrentSpec
from layerline.models.rope_spec import RopeSpec
from layerline.plan import MAX_LAYERS

Norms = Literal["before", "after", "around"]
NormKind = Literal["rms", "layer"]  # by the root of the mean square; by the deviation from the mean
QkNorm = Literal["none", "heads", "rows", "turned_heads"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSpec:
    """Grouped-query attention over pages of keys and values. Sizes are those of one head."""

    heads: int
    kv_heads: int
    head_dim: int  # numbers of a query and of a key
    value_dim: int
    rope: RopeSpec | None  # None: queries and keys are not rotated
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm = "none"  # of each head, or of all as one; "turned_heads": of each, rotated before, by no weight
    window_tokens: int = 0  # a row sees so many positions, its own the last of them; 0: all
    chunk_tokens: int = 0  # in the place of a window: a row sees those from the last multiple of it on; 0: all
    scale: float | None = None  # what the product of a query and a key is multiplied by; None: 1 / √head_dim
    query_growth: QueryGrowth | None = None
    output_gate: bool = False  # what a head gives is multiplied by the sigmoid of as many numbers of the row
    sinks: bool = False  # each head has a learned score that takes its share and has no value
    soft_cap: float = 0.0  # scores stay within it on either side: cap * tanh(score / cap); 0: they are as they are
    value_norm: bool = False  # the values of each head are normed, without a weight
    keys_as_values: bool = False  # values are keys as their matrix makes them, before these are normed and rotated
    source: int | None = None  # an earlier layer: its keys and values are read, and none are made
    latent: LatentSpec | None = None  # then there is one key, whose value is what it has behind the turned numbers

    def __post_init__(self) -> None:
        sizes = (self.heads, self.kv_heads, self.head_dim, self.value_dim)
        require(all(0 < size < MOST_SIDE for size in sizes), "a size of the attention is out of range")
        require(self.heads % self.kv_heads == 0, "heads is not a multiple of kv_heads")
        require(self.rope is None or self.rope.fits(self.head_dim), "a rotation that does not go with head_dim")
        require(self.window_tokens >= 0, "window_tokens out of range")
        require(self.chunk_tokens >= 0, "chunk_tokens out of range")
        require(not (self.window_tokens and self.chunk_tokens), "a window beside chunks")
        require(self.scale is None or 0 < self.scale < math.inf, "the scale of scores is out of range")
        require(0 <= self.soft_cap < math.inf, "the soft cap of scores is out of range")
        require(self.qk_norm in get_args(QkNorm), "a norm of queries and keys that is not known")
        require(self.qk_norm != "turned_heads" or self.rope is not None, "a norm of rotated heads that are not rotated")
        turned = self.rope.turned_numbers(self.head_dim) if self.rope else 0
        is_plain = self.qk_norm == "none" and not (
            self.qkv_bias or self.output_bias or self.query_growth or self.output_gate
        )
        fits = self.kv_heads == 1 and is_plain and turned == self.turned_dim and self.value_dim % PANEL_ROWS == 0
        require(self.latent is None or fits, "latent attention of sizes that do not go together")
        makes, is_even = self.value_norm or self.keys_as_values, self.value_dim == self.head_dim
        is_other = self.qkv_bias or self.latent is not None
        require(not makes or (is_even and not is_other), "values that are not made like keys")
        require(self.source is None or not (makes or is_other or self.qk_norm == "rows"), "a reader of keys makes some")
        makes_all = self.source is None and not self.keys_as_values
        require(not self.output_gate or makes_all, "a gate of the output beside values that have no matrix")

    @property
    def turned_dim(self) -> int:
        """With a latent: numbers of a query and of the key that are turned; the latent is the rest of the key."""
        return self.head_dim - self.value_dim

    @property
    def made_query_dim(self) -> int:
        """Numbers of a query as its matrix makes it; those that a latent is read with are another number."""
        return self.turned_dim + self.latent.plain_dim if self.latent else self.head_dim

    @property
    def made_value_dim(self) -> int:
        """Numbers that a head gives to the output matrix."""
        return self.latent.value_dim if self.latent else self.value_dim

    @property
    def score_scale(self) -> float:
        """What the product of a query and a key is multiplied by."""
        return 1.0 / math.sqrt(self.head_dim) if self.scale is None else self.scale

    @property
    def query_numbers(self) -> int:
        """Numbers in the queries of one row, as they read keys."""
        return self.heads * self.head_dim

    @property
    def key_numbers(self) -> int:
        """Numbers in the keys of one row."""
        return self.kv_heads * self.head_dim

    @property
    def value_numbers(self) -> int:
        """Numbers in the values of one row beside its keys; none if those are all that is kept."""
        return 0 if self.latent else self.kv_heads * self.value_dim

    def feeds(self, reader: AttentionSpec) -> bool:
        """Whether that one can read the keys and values of this one."""
        sizes = [(own.heads, own.kv_heads, own.head_dim, own.value_dim, own.window_tokens) for own in (self, reader)]
        return self.source is None and sizes[0] == sizes[1]

    @property
    def output_numbers(self) -> int:
        """Numbers that attention gives for one row, before the output matrix."""
        return self.heads * self.made_value_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSpec:
    """One decoder layer: what mixes tokens and the feed-forward, each with a norm before it, after it, or both.

    If `parallel`, both read the residual as the layer got it, through one norm.
    """

    mixer: AttentionSpec | RecurrentSpec
    feed_forward: FeedForwardSpec
    norms: Norms = "before"
    parallel: bool = False
    branch_scale: float = 1.0  # what attention and feed-forward add to the residual is multiplied by it
    output_scale: bool = False  # the residual is multiplied by a number of the layer's own in the end
    token_input: int = 0  # so many numbers of the token by itself are let through a gate and added behind; 0: none

    def __post_init__(self) -> None:
        require(self.norms in get_args(Norms), "an order of norms that is not known")
        experts = self.feed_forward.experts
        require(experts is None or not experts.apart or self.norms == "around", "experts apart have norms around")
        require(not self.parallel or self.norms == "before", "parallel attention and feed-forward have one norm before")
        require(0 < self.branch_scale < math.inf, "branch_scale is out of range")

    @property
    def attention(self) -> AttentionSpec:
        """The mixer of a layer that is not recurrent."""
        assert isinstance(self.mixer, AttentionSpec), "a recurrent layer has no attention"
        return self.mixer

    @property
    def source(self) -> int | None:
        """The earlier layer whose keys and values it reads; None: its own, or none."""
        return self.mixer.source if isinstance(self.mixer, AttentionSpec) else None

    @property
    def recurrent(self) -> RecurrentSpec | None:
        """The mixer of a recurrent layer; None: it has attention."""
        return None if isinstance(self.mixer, AttentionSpec) else self.mixer


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A decoder: its kinds of layers, which each layer is, and the ends. Made by `of`, equal ones are equal values."""

    family: str
    kinds: tuple[LayerSpec, ...]
    layer_kinds: tuple[int, ...]  # for each layer its place in `kinds`
    hidden: int
    vocabulary: int
    context_tokens: int  # what it was trained for
    norm_epsilon: float
    tied_output: bool  # the output matrix is the embedding
    norm: NormKind = "rms"
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float = 0.0  # logits stay within it on either side, as scores of attention do; 0: they are as they are

    def __post_init__(self) -> None:
        require(0 < self.layers <= MAX_LAYERS, "layers out of range")
        require(set(self.layer_kinds) == set(range(len(self.kinds))), "layer_kinds do not go with kinds")
        require(all(0 < size < MOST_SIDE for size in (self.hidden, self.vocabulary)), "a size is out of range")
        require(0 < self.context_tokens < MOST_SIDE, "context_tokens out of range")
        require(bool(self._attentions), "a model in which no layer has attention")
        for bound in ("window_tokens", "chunk_tokens"):
            longest = max(getattr(attention, bound) for attention in self._attentions)
            require(longest < self.context_tokens, f"{bound} out of range")
        experts = sum(self.kinds[kind].feed_forward.expert_count for kind in self.layer_kinds)
        require(experts <= MOST_EXPERTS_IN_ALL, "too many experts in all layers")
        require(self.norm in get_args(NormKind), "a kind of norm that is not known")
        scales = (self.embedding_scale, self.logit_scale)
        require(all(0 < scale < math.inf for scale in scales), "a scale is out of range")
        require(0 <= self.logit_cap < math.inf, "the cap of logits is out of range")
        lengths = {rope.original_context_tokens for rope in self._ropes if rope.long_divisors}
        require(len(lengths) <= 1, "rotations with several original contexts")
        require(len({kind.token_input for kind in self.kinds}) == 1, "layers with inputs of unlike size")
        require(0 <= self.token_input * self.layers < MOST_SIDE, "token_input is out of range")
        require(not self.shares_pages or all(map(self._is_fed, range(self.layers))), "a layer that reads unlike keys")

    @classmethod
    def of(
        cls,
        layers: Sequence[LayerSpec],
        *,
        family: str,
        hidden: int,
        vocabulary: int,
        context_tokens: int,
        norm_epsilon: float,
        tied_output: bool,
        norm: NormKind = "rms",
        embedding_scale: float = 1.0,
        logit_scale: float = 1.0,
        logit_cap: float = 0.0,
    ) -> ModelSpec:
        """The model of these layers; its kinds are in the order in which they first occur."""
        kinds = tuple(dict.fromkeys(layers))
        places = {kind: place for place, kind in enumerate(kinds)}
        return cls(
            family=family,
            kinds=kinds,
            layer_kinds=tuple(places[layer] for layer in layers),
            hidden=hidden,
            vocabulary=vocabulary,
            context_tokens=context_tokens,
            norm_epsilon=norm_epsilon,
            tied_output=tied_output,
            norm=norm,
            embedding_scale=embedding_scale,
            logit_scale=logit_scale,
            logit_cap=logit_cap,
        )

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.layer_kinds)

    def layer(self, index: int) -> LayerSpec:
        """The description of one layer."""
        return self.kinds[self.layer_kinds[index]]

    def is_long(self, context_tokens: int) -> bool:
        """Whether served with a context of so many tokens its rotations are those of `lengthened`.

        That is said once for all sequences, as vLLM and llama.cpp do: a token must not depend on how far its sequence
        has come.
        """
        return any(rope.is_long(context_tokens) for rope in self._ropes)

    def lengthened(self) -> ModelSpec:
        """The model as it is served with a context beyond the original one of its rotations."""

        def kind_of(kind: LayerSpec) -> LayerSpec:
            if kind.recurrent is not None or kind.attention.rope is None:
                return kind
            return replace(kind, mixer=replace(kind.attention, rope=kind.attention.rope.lengthened()))

        return replace(self, kinds=tuple(map(kind_of, self.kinds)))

    @property
    def reach_tokens(self) -> int:
        """The widest window if all attention has one, so that what lies before it is never read; 0 otherwise."""
        return max(self._windows) if all(self._windows) else 0

    @property
    def token_input(self) -> int:
        """How many numbers each layer gets of the token by itself."""
        return self.kinds[0].token_input

    @property
    def shares_pages(self) -> bool:
        """Whether some layers read the keys and values of others."""
        return any(attention.source is not None for attention in self._attentions)

    def _is_fed(self, layer: int) -> bool:
        """Whether a layer that reads the keys of another has an earlier one with such keys."""
        source = self.layer(layer).source
        made = self.layer(source).mixer if source is not None and 0 <= source < layer else None
        return source is None or (isinstance(made, AttentionSpec) and made.feeds(self.layer(layer).attention))

    @property
    def is_recurrent(self) -> bool:
        """Whether any layer is, so that a sequence has a slot beside its pages."""
        return any(kind.recurrent is not None for kind in self.kinds)

    @property
    def _attentions(self) -> list[AttentionSpec]:
        return [kind.attention for kind in self.kinds if kind.recurrent is None]

    @property
    def _windows(self) -> list[int]:
        return [attention.window_tokens for attention in self._attentions]

    @property
    def _ropes(self) -> list[RopeSpec]:
        return [attention.rope for attention in self._attentions if attention.rope is not None]
