"""Rotary position embedding: how fast each pair of a head turns, and turning queries and keys in place.

Owns the frequencies of one model, and the order of a head's numbers that turning wants: model files have the first
half of a head paired with its second half; here the two of a pair lie next to each other, as in the paper, so that
a pair is one complex number and a turn one product. Whoever loads queries and keys puts their rows in that order;
their products are the same in any order. No table of angles is kept: those of one step are a few rows.

Source: Su et al., RoFormer (2021); "llama3" scaling as in the Llama 3.1 model code.

Shapes: T rows, N heads, D numbers per head, P = D/2 pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from layerline.models.spec import RopeSpec


class Rope:
    """The rotary embedding of one model on one device."""

    def __init__(self, frequencies_P: Tensor) -> None:
        self._frequencies_P = frequencies_P

    @classmethod
    def of(cls, spec: RopeSpec, head_dim: int, device: torch.device) -> Rope:
        """The embedding that `spec` describes; ValueError for a scaling that is not known."""
        return cls(_frequencies(spec, head_dim).to(device))

    def turns_at(self, positions_T: Tensor) -> Tensor:
        """The turn of every pair of rows at these float32 positions, complex [T, 1, P]."""
        angles_TP = positions_T[:, None] * self._frequencies_P
        return torch.polar(torch.ones_like(angles_TP), angles_TP)[:, None]


Turns: TypeAlias = Mapping[Rope, Tensor]
"""Of each rotation in a stage the turns of one step's rows."""


def turn_(heads_TND: Tensor, turns_T1P: Tensor) -> None:
    """Turns every head of every row in place; the products are made in float32."""
    shape_TNP2 = (*heads_TND.shape[:2], -1, 2)
    heads_TNP = torch.view_as_complex(heads_TND.float().view(shape_TNP2))
    heads_TND.copy_(torch.view_as_real(heads_TNP * turns_T1P).view(heads_TND.shape))


def pair_order(head_dim: int) -> tuple[int, ...]:
    """Which row of a head in a model file is each row in the order that `turn_` wants."""
    half = head_dim // 2
    return tuple(row // 2 + half * (row % 2) for row in range(head_dim))


def _frequencies(spec: RopeSpec, head_dim: int) -> Tensor:
    """Radians per position of each pair, float32 [P]."""
    exponents_P = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain_P = 1.0 / spec.theta**exponents_P
    if spec.scaling == "none":
        return plain_P
    if spec.scaling == "linear":
        return plain_P / spec.factor
    if spec.scaling == "llama3":
        return _llama3(spec, plain_P)
    raise ValueError(f"rope scaling {spec.scaling!r} is not known")


def _llama3(spec: RopeSpec, plain_P: Tensor) -> Tensor:
    """Slow pairs are slowed by `factor`, fast ones kept, those between weighed by their turns per context."""
    turns_P = spec.original_context_tokens * plain_P / (2 * math.pi)
    span = spec.high_frequency_factor - spec.low_frequency_factor
    kept_P = ((turns_P - spec.low_frequency_factor) / span).clamp(0.0, 1.0)
    return (1 - kept_P) * plain_P / spec.factor + kept_P * plain_P
