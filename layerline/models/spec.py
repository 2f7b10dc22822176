"""What a decoder is, as data: one value that describes every family layerline knows, free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.checks import require
from layerline.plan import MAX_LAYERS


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeSpec:
    """Rotary position embedding. `scaling` is "none", "linear" or "llama3"; the other fields belong to those.

    Source: Su et al., RoFormer (2021); "llama3" as in the Llama 3.1 model code.
    """

    theta: float
    scaling: str = "none"
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context_tokens: int = 8192


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A pre-norm decoder with grouped-query attention and a gated feed-forward."""

    family: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_tokens: int  # what it was trained for
    norm_epsilon: float
    rope: RopeSpec
    qkv_bias: bool
    tied_output: bool  # the output matrix is the embedding
    window_tokens: int = 0  # in layers with a window a row sees so many positions, its own the last of them; 0: all
    first_windowed_layer: int = 0  # this layer and all after it have the window

    def __post_init__(self) -> None:
        require(0 < self.layers <= MAX_LAYERS, "layers out of range")
        sizes = (self.hidden, self.intermediate, self.heads, self.kv_heads, self.head_dim, self.vocabulary)
        require(all(0 < size < 1 << 24 for size in sizes), "a size of the model is out of range")
        require(self.heads % self.kv_heads == 0, "heads is not a multiple of kv_heads")
        require(self.head_dim % 2 == 0, "head_dim is odd")
        require(0 < self.context_tokens < 1 << 24, "context_tokens out of range")
        require(0 <= self.window_tokens < self.context_tokens, "window_tokens out of range")
        require(0 <= self.first_windowed_layer < self.layers, "first_windowed_layer out of range")

    def window_of(self, layer: int) -> int:
        """The window of a layer in tokens, 0 if it has none."""
        return self.window_tokens if layer >= self.first_windowed_layer else 0

    @property
    def reach_tokens(self) -> int:
        """The window that every layer has, so that what lies before it is never read; 0 if there is none."""
        return self.window_of(0)
