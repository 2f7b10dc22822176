"""Rotary position embedding: how fast each pair of a head turns, and turning queries and keys in place.

Owns the frequencies of one model. Knows nothing of pages, sequences or which tensor holds what. No table is
kept: a stage may be asked for any position, and the angles of one step are a few rows.

Source: Su et al., RoFormer (2021), in the half-rotated layout of Hugging Face, where number i of a head is
paired with number i + D/2; "llama3" scaling as in the Llama 3.1 model code.

Shapes: T rows, N heads, D numbers per head.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.models.spec import RopeSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Rotation:
    """The turn of each row, float32. `sin_T1D` has its first half negated, so that a turn is two products."""

    cos_T1D: Tensor
    sin_T1D: Tensor

    def turn_(self, heads_TND: Tensor) -> None:
        """Turns every head of every row in place; the products are made in float32."""
        first, second = heads_TND.chunk(2, dim=-1)
        swapped = torch.cat((second, first), dim=-1)
        torch.addcmul(heads_TND * self.cos_T1D, swapped, self.sin_T1D, out=heads_TND)


class Rope:
    """The rotary embedding of one model on one device."""

    def __init__(self, frequencies_D2: Tensor) -> None:
        self._frequencies_D2 = frequencies_D2

    @classmethod
    def of(cls, spec: RopeSpec, head_dim: int, device: torch.device) -> Rope:
        """The embedding that `spec` describes; ValueError for a scaling that is not known."""
        return cls(_frequencies(spec, head_dim).to(device))

    def at(self, positions_T: Tensor) -> Rotation:
        """The rotation of rows at these float32 positions."""
        angles_TD2 = positions_T[:, None] * self._frequencies_D2
        cos_TD2, sin_TD2 = angles_TD2.cos(), angles_TD2.sin()
        return Rotation(
            cos_T1D=torch.cat((cos_TD2, cos_TD2), dim=-1)[:, None],
            sin_T1D=torch.cat((-sin_TD2, sin_TD2), dim=-1)[:, None],
        )


def _frequencies(spec: RopeSpec, head_dim: int) -> Tensor:
    """Radians per position of each pair, float32 [D/2]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / spec.theta**exponents
    if spec.scaling == "none":
        return plain
    if spec.scaling == "linear":
        return plain / spec.factor
    if spec.scaling == "llama3":
        return _llama3(spec, plain)
    raise ValueError(f"rope scaling {spec.scaling!r} is not known")


def _llama3(spec: RopeSpec, plain: Tensor) -> Tensor:
    """Slow pairs are slowed by `factor`, fast ones kept, those between interpolated by their turns per context."""
    turns = spec.original_context_tokens * plain / (2 * math.pi)
    span = spec.high_frequency_factor - spec.low_frequency_factor
    kept = ((turns - spec.low_frequency_factor) / span).clamp(0.0, 1.0)
    return (1 - kept) * plain / spec.factor + kept * plain
