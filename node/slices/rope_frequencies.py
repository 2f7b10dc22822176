"""How fast each pair of a head turns with the position, and the order in which the two of a pair are neighbours.

Source: Su et al., RoFormer (2021); "llama3" scaling as in the Llama 3.1 model code. Needs no torch.

Shapes: P = half a head's numbers, its pairs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from layerline.models.spec import RopeSpec


def frequencies(spec: RopeSpec, head_dim: int) -> NDArray[np.float32]:
    """Radians per position of each pair [P]; ValueError for a scaling that is not known.

    Powers are rounded to float32 before they are inverted, as in `transformers`.
    """
    exponents_P = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    powers_P = (spec.theta ** exponents_P.astype(np.float64)).astype(np.float32)
    plain_P = np.float32(1.0) / powers_P
    if spec.scaling == "none":
        return plain_P
    if spec.scaling == "linear":
        return plain_P / np.float32(spec.factor)
    if spec.scaling == "llama3":
        return _llama3(spec, plain_P)
    raise ValueError(f"rope scaling {spec.scaling!r} is not known")


def pair_order(head_dim: int) -> tuple[int, ...]:
    """Which row of a head in a model file is each row where the two of a pair are neighbours."""
    half = head_dim // 2
    return tuple(row // 2 + half * (row % 2) for row in range(head_dim))


def _llama3(spec: RopeSpec, plain_P: NDArray[np.float32]) -> NDArray[np.float32]:
    """Slow pairs are slowed by `factor`, fast ones kept, those between weighed by their turns per context."""
    turns_P = np.float32(spec.original_context_tokens) * plain_P / np.float32(2 * math.pi)
    span = spec.high_frequency_factor - spec.low_frequency_factor
    kept_P = ((turns_P - np.float32(spec.low_frequency_factor)) / np.float32(span)).clip(0.0, 1.0)
    slowed_P = (1 - kept_P) * plain_P / np.float32(spec.factor)
    return (slowed_P + kept_P * plain_P).astype(np.float32)
