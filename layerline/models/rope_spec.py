"""A rotary position embedding, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from layerline.checks import require
from layerline.models.feed_forward_spec import MOST_SIDE

SMALLEST_ROTARY, LARGEST_ROTARY = 1e-6, 1e12  # of what rotary frequencies are computed with

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
