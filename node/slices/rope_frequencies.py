"""How fast each pair of a head turns with the position, and the order in which the two of a pair are neighbours.

Source: Su et al., RoFormer (2021); Peng et al., YaRN (2023); Ding et al., LongRoPE (2024); "llama3" scaling as in the
Llama 3.1 model code. Needs no torch.

Shapes: P pairs of a head, half the numbers that are turned.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec


def frequencies(spec: RopeSpec, head_dim: int) -> NDArray[np.float32]:
    """Radians per position of each pair [P].

    Powers are rounded to float32 before they are inverted, as in `transformers`.
    """
    powers_P = _powers(spec, head_dim)
    plain_P = np.float32(1.0) / powers_P
    if spec.scaling in ("linear", "proportional"):
        plain_P = plain_P / np.float32(spec.factor)
    if spec.scaling == "llama3":
        return _llama3(spec, plain_P)
    if spec.scaling == "yarn":
        return _yarn(spec, powers_P)
    if spec.scaling == "longrope":
        return np.float32(1.0) / (np.array(spec.divisors, np.float32) * powers_P)
    if spec.scaling == "proportional" and spec.rotated:
        plain_P[spec.rotated // 2 :] = 0.0
    return plain_P


def pair_order(spec: RopeSpec, head_dim: int) -> tuple[int, ...]:
    """Which row of a head in a model file is each row where the two of a pair are neighbours; none: they are there."""
    if spec.interleaved:
        return ()
    turned = spec.turned_numbers(head_dim)
    half = turned // 2
    return (*(row // 2 + half * (row % 2) for row in range(turned)), *range(turned, head_dim))


def value_order(spec: AttentionSpec) -> tuple[int, ...]:
    """Where values are keys: which number of a key each number of a value is; none: they are other numbers.

    Keys have their pairs next to each other, and values are as in the file.
    """
    if not spec.keys_as_values:
        return ()
    order = pair_order(spec.rope, spec.head_dim) if spec.rope else ()
    return tuple(map(order.index, range(spec.head_dim))) if order else tuple(range(spec.head_dim))


def _powers(spec: RopeSpec, head_dim: int) -> NDArray[np.float32]:
    """Theta to the power of each pair's share of what is turned [P], the inverse of the plain frequencies."""
    turned = spec.turned_numbers(head_dim)
    exponents_P = np.arange(0, turned, 2, dtype=np.float32) / np.float32(turned)
    powers_P: NDArray[np.float64] = spec.theta ** exponents_P.astype(np.float64)
    return powers_P.astype(np.float32)


def _llama3(spec: RopeSpec, plain_P: NDArray[np.float32]) -> NDArray[np.float32]:
    """Slow pairs are slowed by `factor`, fast ones kept, those between weighed by their turns per context."""
    turns_P = np.float32(spec.original_context_tokens) * plain_P / np.float32(2 * math.pi)
    span = spec.high_frequency_factor - spec.low_frequency_factor
    if span == 0:
        kept_P = (turns_P >= np.float32(spec.high_frequency_factor)).astype(np.float32)
    else:
        kept_P = ((turns_P - np.float32(spec.low_frequency_factor)) / np.float32(span)).clip(0.0, 1.0)
    slowed_P = (1 - kept_P) * plain_P / np.float32(spec.factor)
    return (slowed_P + kept_P * plain_P).astype(np.float32)


def _yarn(spec: RopeSpec, powers_P: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same, those between weighed by their place among the pairs."""
    pairs = len(powers_P)
    first, end = (_pair_of_turns(spec, 2 * pairs, turns) for turns in (spec.fast_turns, spec.slow_turns))
    if spec.whole_bounds:
        first, end = math.floor(first), math.ceil(end)
    first, end = max(first, 0), min(end, 2 * pairs - 1)
    span = end - first or 0.001  # of a bound alone
    slowed_P = ((np.arange(pairs, dtype=np.float32) - np.float32(first)) / np.float32(span)).clip(0.0, 1.0)
    kept_P = 1 - slowed_P
    scaled_P = np.float32(1.0) / (np.float32(spec.factor) * powers_P)
    mixed_P: NDArray[np.float32] = scaled_P * (1 - kept_P) + np.float32(1.0) / powers_P * kept_P
    return mixed_P


def _pair_of_turns(spec: RopeSpec, turned: int, turns: float) -> float:
    """The place among the pairs at which one would turn so often in the original context."""
    return turned * math.log(spec.original_context_tokens / (turns * 2 * math.pi)) / (2 * math.log(spec.theta))
