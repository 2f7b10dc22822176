"""Rotary position embedding: turning queries and keys in place.

Owns the order of a head's numbers that turning wants: most model files have the first half of what is turned paired
with its second half; here the two of a pair lie next to each other, as in the paper, so that a pair is one complex
number and a turn one product. Whoever loads queries and keys puts their rows in that order; their products are the same
in any order. No table of angles is kept: those of one step are a few rows.

Source: Su et al., RoFormer (2021).

Shapes: T rows, N heads, D numbers per head, the first R of them turned, in P = R/2 pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from layerline.models.rope_spec import RopeSpec
from node.slices.rope_frequencies import frequencies


class Rope:
    """The rotary embedding of one model on one device."""

    def __init__(self, frequencies_P: Tensor, amplitude: float) -> None:
        self._frequencies_P = frequencies_P
        self._amplitude = amplitude

    @classmethod
    def of(cls, spec: RopeSpec, head_dim: int, device: torch.device) -> Rope:
        """The embedding that `spec` describes."""
        return cls(torch.from_numpy(frequencies(spec, head_dim)).to(device), spec.amplitude)

    def turns_at(self, positions_T: Tensor) -> Tensor:
        """The turn of every pair of rows at these float32 positions, complex [T, 1, P]."""
        angles_TP = positions_T[:, None] * self._frequencies_P
        return torch.polar(torch.full_like(angles_TP, self._amplitude), angles_TP)[:, None]


Turns: TypeAlias = Mapping[Rope, Tensor]
"""Of each rotation in a stage the turns of one step's rows."""


def turn_(heads_TND: Tensor, turns_T1P: Tensor) -> None:
    """Turns the pairs of every head of every row in place; the products are made in float32."""
    turned_TNR = heads_TND.narrow(2, 0, 2 * turns_T1P.shape[-1])
    turned_TNP = torch.view_as_complex(turned_TNR.float().view(*turned_TNR.shape[:2], -1, 2))
    turned_TNR.copy_(torch.view_as_real(turned_TNP * turns_T1P).flatten(2))
