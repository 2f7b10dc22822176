"""The weights of what layers get of each token by itself, as the kernels have them; node/model/token_inputs.py tells
what is done with them.

Shapes: C hidden, P numbers that a layer gets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from node.native.matrices import NativeMatrix


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeTokenInputs:
    """Those of a stage, whose layers have theirs side by side."""

    table: NativeMatrix
    projection: NativeMatrix
    norm_P: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeTokenBranch:
    """Those of a layer, which lets its input through and adds it to the residual."""

    gate: NativeMatrix
    output: NativeMatrix
    after_C: NDArray[np.float32]

    @property
    def matrices(self) -> tuple[NativeMatrix, ...]:
        """All there are."""
        return self.gate, self.output
