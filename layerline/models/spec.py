"""What a decoder is, as data: layer by layer, and the ends. Free of torch, containers and families.

A model has few kinds of layers and says for each layer which kind it is; `ModelSpec.layer` is how everybody reads it. A
layer's `attention` says what state it keeps: keys and values, in pages. A layer with another state, such as a recurrent
one, would have another description in that place.
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
from layerline.plan import MAX_LAYERS

SMALLEST_ROTARY, LARGEST_ROTARY = 1e-6, 1e12  # of what rotary frequencies are computed with

Norms = Literal["before", "after", "around"]
NormKind = Literal["rms", "layer"]  # by the root of the mean square; by the deviation from the mean
QkNorm = Literal["none", "heads", "rows", "turned_heads"]
Scaling = Literal["none", "linear", "llama3", "yarn", "longrope", "proportional"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeSpec:
    """Rotary position embedding; `scaling` says how its frequencies differ from the plain ones.

    "none", "linear" and "llama3"; "yarn"; "longrope", which divides each pair's frequency by a number of its own;
    "proportional", in which pairs are made of the whole head and those behind the first `rotated` numbers stand still.
    Fields that a scaling does not name have no effect on it.

    Source: Su et al., RoFormer (2021); Peng et al., YaRN (2023); Ding et al., LongRoPE (2024); "llama3" as in the Llama
    3.1 model code.
    """

    theta: float
    rotated: int = 0  # so many of a head's numbers are turned, the first ones; 0: all
    interleaved: bool = False  # in files the two of a pair are neighbours; else they lie half of what is rotated apart
    scaling: Scaling = "none"
    factor: float = 1.0  # "linear", "llama3", "yarn", "proportional"
    amplitude: float = 1.0  # what is turned is multiplied by it; of any scaling
    original_context_tokens: int = 8192  # "llama3", "yarn", "longrope"
    low_frequency_factor: float = 1.0  # "llama3"
    high_frequency_factor: float = 4.0
    fast_turns: float = 32.0  # "yarn": pairs that turn so often in the original context keep their frequency
    slow_turns: float = 1.0  # those that turn so often are slowed by `factor`
    whole_bounds: bool = True  # the bounds between these are rounded to whole pairs
    divisors: tuple[float, ...] = ()  # "longrope": of each pair
    long_divisors: tuple[float, ...] = ()  # those where a context beyond the original one is served; empty: the same

    def __post_init__(self) -> None:
        factors = (self.theta, self.factor, self.amplitude, self.low_frequency_factor, self.high_frequency_factor)
        all_factors = (*factors, self.fast_turns, self.slow_turns, *self.divisors, *self.long_divisors)
        require(
            all(SMALLEST_ROTARY <= factor <= LARGEST_ROTARY for factor in all_factors), "a rotary factor out of range"
        )
        require(self.low_frequency_factor <= self.high_frequency_factor, "rotary frequency factors in the wrong order")
        require(self.slow_turns < self.fast_turns, "rotary turns in the wrong order")
        require(0 < self.original_context_tokens < MOST_SIDE, "original_context_tokens out of range")
        require(0 <= self.rotated < MOST_SIDE and self.rotated % 2 == 0, "rotated is odd or out of range")
        require(self.scaling in get_args(Scaling), "a rotary scaling that is not known")
        require(self.scaling != "yarn" or self.theta > 1, "the rotary theta of yarn is not more than 1")
        require(bool(self.divisors) == (self.scaling == "longrope"), "rotary divisors that do not go with the scaling")
        require(len(self.long_divisors) in (0, len(self.divisors)), "rotary divisors of unlike number")

    def turned_numbers(self, head_dim: int) -> int:
        """How many of a head's numbers, from the first on, are in pairs."""
        return head_dim if self.scaling == "proportional" else self.rotated or head_dim

    def fits(self, head_dim: int) -> bool:
        """Whether a head has the numbers that are to be turned, in pairs, and so many divisors."""
        pairs = self.turned_numbers(head_dim) // 2
        return head_dim % 2 == 0 and self.rotated <= head_dim and len(self.divisors) in (0, pairs)

    def is_long(self, context_tokens: int) -> bool:
        """Whether it is another one in a context of so many tokens than in the original one."""
        return bool(self.long_divisors) and context_tokens > self.original_context_tokens

    def lengthened(self) -> RopeSpec:
        """The one in a context beyond the original one."""
        return replace(self, divisors=self.long_divisors, long_divisors=()) if self.long_divisors else self


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
    sinks: bool = False  # each head has a learned score that takes its share and has no value
    soft_cap: float = 0.0  # scores stay within it on either side: cap * tanh(score / cap); 0: they are as they are
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
        is_plain = self.qk_norm == "none" and not (self.qkv_bias or self.output_bias or self.query_growth)
        fits = self.kv_heads == 1 and is_plain and turned == self.turned_dim and self.value_dim % PANEL_ROWS == 0
        require(self.latent is None or fits, "latent attention of sizes that do not go together")

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

    @property
    def output_numbers(self) -> int:
        """Numbers that attention gives for one row, before the output matrix."""
        return self.heads * self.made_value_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerSpec:
    """One decoder layer: attention and feed-forward, each with a norm before it, after it, or both.

    If `parallel`, both read the residual as the layer got it, through one norm.
    """

    attention: AttentionSpec
    feed_forward: FeedForwardSpec
    norms: Norms = "before"
    parallel: bool = False
    branch_scale: float = 1.0  # what attention and feed-forward add to the residual is multiplied by it

    def __post_init__(self) -> None:
        require(self.norms in get_args(Norms), "an order of norms that is not known")
        require(not self.parallel or self.norms == "before", "parallel attention and feed-forward have one norm before")
        require(0 < self.branch_scale < math.inf, "branch_scale is out of range")


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
        for bound in ("window_tokens", "chunk_tokens"):
            longest = max(getattr(kind.attention, bound) for kind in self.kinds)
            require(longest < self.context_tokens, f"{bound} out of range")
        experts = sum(self.kinds[kind].feed_forward.expert_count for kind in self.layer_kinds)
        require(experts <= MOST_EXPERTS_IN_ALL, "too many experts in all layers")
        require(self.norm in get_args(NormKind), "a kind of norm that is not known")
        scales = (self.embedding_scale, self.logit_scale)
        require(all(0 < scale < math.inf for scale in scales), "a scale is out of range")
        require(0 <= self.logit_cap < math.inf, "the cap of logits is out of range")
        lengths = {rope.original_context_tokens for rope in self._ropes if rope.long_divisors}
        require(len(lengths) <= 1, "rotations with several original contexts")

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
            rope = kind.attention.rope
            return replace(kind, attention=replace(kind.attention, rope=rope.lengthened())) if rope else kind

        return replace(self, kinds=tuple(map(kind_of, self.kinds)))

    @property
    def _ropes(self) -> list[RopeSpec]:
        ropes = [kind.attention.rope for kind in self.kinds]
        return [rope for rope in ropes if rope is not None]

    @property
    def reach_tokens(self) -> int:
        """The widest window if every layer has one, so that what lies before it is never read; 0 otherwise."""
        windows = [kind.attention.window_tokens for kind in self.kinds]
        return max(windows) if all(windows) else 0
