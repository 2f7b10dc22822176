"""Layers whose state does not grow with the context, as data: short convolutions, the gated delta net, Mamba 2.

Such a layer multiplies its row by one matrix, makes of that and of its state what a second matrix takes, and leaves the
state for the next row. The state of a sequence is a slot: one for all positions, beside the pages that attention has.
Its numbers are float32: first the last `taps - 1` rows that the convolution got, one below the other, then, of each
head, a matrix.

Ranks share such a layer as they do attention: each has some `heads`, and the `kv_heads` that these read.

Shapes of one row: H heads, K key heads, N numbers of a key, P numbers of a value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from layerline.checks import require
from layerline.models.feed_forward_spec import MOST_SIDE

MOST_TAPS = 64
LENGTH_EPSILON = 1e-6  # below the root by which a delta net makes queries and keys as long as 1
STATE_NUMBER_BYTES = 4  # float32, whatever keys and values are held in


@dataclass(frozen=True, kw_only=True, slots=True)
class ShortConvSpec:
    """A gated convolution over the last few rows: c * conv(b * x), of channels b, c and x that the first matrix makes.

    Source: Liquid AI, LFM2 (2025).
    """

    channels: int
    taps: int  # rows that a row is made of, its own the last of them
    bias: bool = False  # of both matrices and of the convolution

    def __post_init__(self) -> None:
        _check_sizes(self.channels, taps=self.taps)

    @property
    def heads(self) -> int:
        """Each channel is one."""
        return self.channels

    @property
    def kv_heads(self) -> int:
        """As many."""
        return self.channels

    def part(self, heads: int, kv_heads: int) -> ShortConvSpec:
        """That of a rank which has so many."""
        assert heads == kv_heads, "each channel reads itself"
        return replace(self, channels=heads)

    @property
    def made_numbers(self) -> int:
        """Numbers of a row as the first matrix makes it."""
        return 3 * self.channels

    @property
    def conv_channels(self) -> int:
        """Numbers of a row that the convolution gets."""
        return self.channels

    @property
    def output_numbers(self) -> int:
        """Numbers of a row that the second matrix takes."""
        return self.channels

    @property
    def state_numbers(self) -> int:
        """Numbers of a slot."""
        return (self.taps - 1) * self.conv_channels


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaNetSpec:
    """Linear attention whose state [H, N, P] forgets by a gate and corrects what a key reads of it.

    Queries, keys and values pass a convolution and SiLU; the output of each head is normed and gated.

    Source: Yang et al., Gated Delta Networks (2024).
    """

    value_heads: int
    key_heads: int  # each is read by as many value heads
    key_dim: int
    value_dim: int
    taps: int
    tiled: bool = False  # value head h reads key head h mod key_heads; otherwise neighbours read the same

    def __post_init__(self) -> None:
        _check_sizes(self.value_heads, self.key_heads, self.key_dim, self.value_dim, taps=self.taps)
        require(self.value_heads % self.key_heads == 0, "value_heads is not a multiple of key_heads")

    @property
    def heads(self) -> int:
        """Value heads."""
        return self.value_heads

    @property
    def kv_heads(self) -> int:
        """Key heads."""
        return self.key_heads

    def part(self, heads: int, kv_heads: int) -> DeltaNetSpec:
        """That of a rank which has so many."""
        return replace(self, value_heads=heads, key_heads=kv_heads)

    @property
    def key_numbers(self) -> int:
        """Numbers of a row's queries, and of its keys."""
        return self.key_heads * self.key_dim

    @property
    def value_numbers(self) -> int:
        """Numbers of a row's values, and of their gate."""
        return self.value_heads * self.value_dim

    @property
    def made_numbers(self) -> int:
        """Numbers of a row as the first matrix makes it: q, k, v, their gate, how heads write and forget."""
        return self.conv_channels + self.value_numbers + 2 * self.value_heads

    @property
    def conv_channels(self) -> int:
        """Numbers of a row that the convolution gets: q, k and v."""
        return 2 * self.key_numbers + self.value_numbers

    @property
    def output_numbers(self) -> int:
        """Numbers of a row that the second matrix takes."""
        return self.value_numbers

    @property
    def state_numbers(self) -> int:
        """Numbers of a slot."""
        return (self.taps - 1) * self.conv_channels + self.value_heads * self.key_dim * self.value_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Mamba2Spec:
    """A state space model whose state [H, P, N] decays by a number a head and row.

    x, B and C pass a convolution and SiLU; B and C are those of a group of heads. The output of all heads of a group is
    gated and normed as one.

    Source: Dao and Gu, Transformers are SSMs (2024).
    """

    heads: int
    head_dim: int
    groups: int
    state_dim: int
    taps: int
    conv_bias: bool = True

    def __post_init__(self) -> None:
        _check_sizes(self.heads, self.head_dim, self.groups, self.state_dim, taps=self.taps)
        require(self.heads % self.groups == 0, "heads is not a multiple of groups")

    @property
    def kv_heads(self) -> int:
        """Groups."""
        return self.groups

    def part(self, heads: int, kv_heads: int) -> Mamba2Spec:
        """That of a rank which has so many."""
        return replace(self, heads=heads, groups=kv_heads)

    @property
    def made_numbers(self) -> int:
        """Numbers of a row as the first matrix makes it: the gate, x, B, C, how far heads step."""
        return self.output_numbers + self.conv_channels + self.heads

    @property
    def conv_channels(self) -> int:
        """Numbers of a row that the convolution gets: x, B and C."""
        return self.output_numbers + 2 * self.groups * self.state_dim

    @property
    def output_numbers(self) -> int:
        """Numbers of a row that the second matrix takes."""
        return self.heads * self.head_dim

    @property
    def state_numbers(self) -> int:
        """Numbers of a slot."""
        return (self.taps - 1) * self.conv_channels + self.output_numbers * self.state_dim


RecurrentSpec = ShortConvSpec | DeltaNetSpec | Mamba2Spec


def _check_sizes(*sizes: int, taps: int) -> None:
    require(all(0 < size < MOST_SIDE for size in sizes), "a size of the recurrent layer is out of range")
    require(1 < taps <= MOST_TAPS, "taps out of range")
