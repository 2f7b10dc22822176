"""A rank among the ranks of its stage: what they do together, whatever carries it.

Shapes: T rows, I numbers in each, which may be more on one rank than on another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor  # which takes seconds, and a rank by itself may do without

DEADLINE_S = 10.0  # for every rank to take part in an operation


class RankGroup(Protocol):
    """The ranks of a stage as seen by one of them. All must call the same operations in the same order.

    Either operation raises StageFailedError, which names the rank, if one does not take part within the deadline. Then
    the ranks are no longer in step, and the group is of no further use.
    """

    @property
    def rank(self) -> int:
        """Which one this is, from 0."""

    @property
    def count(self) -> int:
        """How many there are."""

    def all_reduce_(self, x: Tensor) -> None:
        """Makes the contiguous `x` the sum of those of all ranks, in place: to the bit the same on every rank."""

    def gather(self, x_TI: Tensor) -> tuple[Tensor, ...] | None:
        """On rank 0 the blocks of all ranks, in their order, each with as many rows as its own; None elsewhere."""


class Alone:
    """The group of one, for which there is nothing to do."""

    rank = 0
    count = 1

    def all_reduce_(self, x: Tensor) -> None:
        """Leaves `x` as it is: the sum over one rank."""

    def gather(self, x_TI: Tensor) -> tuple[Tensor, ...] | None:
        """The one block."""
        return (x_TI,)
