"""The experts of a layer as the kernels have them, all of them or those that a rank has; and a dense one beside them.

One large piece of memory is in few large pages, where many small ones are in many small pages, which takes longer to
read: all experts of a layer are in one, each in a slot of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.models.feed_forward_spec import FeedForwardSpec
from node.kernels.engine import aligned_bytes
from node.kernels.structures import Experts, Matrix, ScoringKind
from node.native.feed_forward import NativeFeedForward, gate_kind
from node.native.matrices import NativeMatrix, Room
from node.slices.placed_experts import PlacedExperts

_SCORINGS = {
    "softmax": ScoringKind.SOFTMAX,
    "softmax_of_chosen": ScoringKind.SOFTMAX_OF_CHOSEN,
    "sigmoid": ScoringKind.SIGMOID,
    "sigmoid_of_chosen": ScoringKind.SIGMOID_OF_CHOSEN,
}
Vector = NDArray[np.float32]


class ExpertSlots:
    """Memory for experts of a layer: slots of these bytes, one for each."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._memory = np.split(aligned_bytes(sum(sizes)), np.cumsum(sizes)[:-1])
        self._free = list(range(len(sizes)))
        self._taken: dict[int, int] = {}  # by expert

    def take(self, expert: int) -> Room:
        """The room of the first free slot, which is that expert's from now on."""
        slot = self._taken[expert] = self._free.pop(0)
        return Room(self._memory[slot])

    def leave(self, expert: int) -> None:
        """The expert's slot is free again."""
        self._free.append(self._taken.pop(expert))


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeRouter:
    """What chooses experts: the matrix of logits, the bias of the choice and the scales of weights, if it has them."""

    logits: NativeMatrix
    choice_bias_N: Vector | None = None
    scales_N: Vector | None = None


class NativeExperts:
    """The experts that are here by their numbers, a shared one, and what chooses them; `structure` points into it.

    Without `placed` all of them are here, for all rows. `rows_N` counts the rows of each expert.
    """

    def __init__(
        self,
        spec: FeedForwardSpec,
        router: NativeRouter,
        experts: Mapping[int, NativeFeedForward],
        shared: NativeFeedForward | None = None,
        placed: PlacedExperts | None = None,
    ) -> None:
        chosen = spec.experts
        assert chosen is not None, "it is of experts"
        self.router = router.logits
        self.rows_N = np.zeros(chosen.count, np.int64)
        self.own = dict(experts)
        self.pairs_of_a_row = spec.experts_of_a_row
        self.widest = max(spec.widths)
        self._shared, self._count, self._router = shared, chosen.count, router
        self.structure = Experts(
            choice_bias=None if router.choice_bias_N is None else router.choice_bias_N.ctypes.data,
            scales=None if router.scales_N is None else router.scales_N.ctypes.data,
            count=chosen.count,
            chosen=chosen.chosen,
            groups=chosen.groups,
            chosen_groups=chosen.chosen_groups,
            group_best=chosen.group_best,
            scoring=_SCORINGS[chosen.scoring],
            normalised=chosen.normalised,
            shared=shared is not None,
            shared_gate=chosen.shared_gate,
            activation=gate_kind(spec),
            scale=chosen.scale,
            weighs_input=chosen.weighs_input,
            rows=self.rows_N.ctypes.data,
        )
        self.place_(self.own, placed)

    def place_(self, own: Mapping[int, NativeFeedForward], placed: PlacedExperts | None) -> None:
        """From now on these experts are here, and compute the rows that `placed` says."""
        assert placed is not None or len(own) == self._count, "experts that are elsewhere are placed"
        self.own, self._placed = dict(own), placed
        here = {**self.own, **({} if self._shared is None else {self._count: self._shared})}
        self._matrices = [(Matrix * (self._count + 1))() for _ in range(2)]
        for expert, each in here.items():
            self._matrices[0][expert], self._matrices[1][expert] = each.gate_up.structure, each.down.structure
        structure = self.structure
        structure.gate_up, structure.down = self._matrices
        structure.copies = None if placed is None else placed.copies_E.ctypes.data
        structure.turns = None if placed is None else placed.turns_E.ctypes.data

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return (self.router,)

    @property
    def address(self) -> int:
        """Of its structure."""
        return ctypes.addressof(self.structure)


@dataclass(frozen=True, kw_only=True, slots=True)
class NativeBranches:
    """A dense one beside experts, with the norms of these branches but for that which the dense one reads through."""

    dense: NativeFeedForward
    dense_after_C: Vector
    router_norm_C: Vector
    experts_before_C: Vector
    experts: NativeExperts
    experts_after_C: Vector

    @property
    def row_matrices(self) -> tuple[NativeMatrix, ...]:
        """Those that all rows of a step are multiplied with."""
        return *self.dense.row_matrices, *self.experts.row_matrices


def experts_of(made: NativeFeedForward | NativeExperts | NativeBranches) -> NativeExperts | None:
    """Those that it has, if it has any."""
    if isinstance(made, NativeBranches):
        return made.experts
    return made if isinstance(made, NativeExperts) else None
