"""What a node would do for a plan: the time of each layer on one of its device groups, and which ranges of layers fit.

Times are whole ticks, so that ties are exact; how long a tick is, is the business of who makes the offers.

Shapes: P positions between layers, 0 to the number of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coordinator.planning.footprint import Ends

LONGEST_TICKS = 1 << 44  # of a whole model on one node, so that no sum overflows
Ticks = NDArray[np.int64]
Positions = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Offer:
    """What one device group of a node would do.

    `ticks_P` is the time of all layers before a position. `starts_P` is, for the ends that a stage may have, where the
    longest stage up to a position begins for which there is memory; the position itself where there is none.
    """

    node: int  # the node's place in the list
    group: int  # the group's place in the node
    ticks_P: Ticks
    output_ticks: int
    starts_P: dict[Ends, Positions]

    def fixed_ticks(self, ends: Ends) -> int:
        """The time of a stage with those ends beside its layers."""
        return self.output_ticks if ends.last else 0

    def most_layers(self, ends: Ends) -> int:
        """The most layers for which a stage has memory; one without an end of the model leaves a layer there."""
        longest = int(np.max(np.arange(len(self.ticks_P)) - self.starts_P[ends]))
        return min(longest, len(self.ticks_P) - 3 + ends.first + ends.last)

    def is_no_worse_than(self, other: Offer) -> bool:
        """Whether nothing speaks for `other`."""
        faster = bool(np.all(np.diff(self.ticks_P) <= np.diff(other.ticks_P)))
        roomier = all(bool(np.all(self.starts_P[ends] <= starts_P)) for ends, starts_P in other.starts_P.items())
        return faster and roomier and self.output_ticks <= other.output_ticks

    def starts_within(self, ends: Ends, bound: int) -> Positions:
        """As `starts_P`, of stages that also take no longer than `bound`."""
        by_time_P = np.searchsorted(self.ticks_P, self.ticks_P + (self.fixed_ticks(ends) - bound))
        starts_P: Positions = np.minimum(np.maximum(self.starts_P[ends], by_time_P), np.arange(len(by_time_P)))
        return starts_P

    def mirrored(self) -> Offer:
        """The same for the layers in reverse order; the ends keep their names."""
        layers = len(self.ticks_P) - 1
        stops_P = {
            ends: np.searchsorted(starts_P, np.arange(layers + 1), side="right") - 1
            for ends, starts_P in self.starts_P.items()
        }
        return replace(
            self,
            ticks_P=self.ticks_P[-1] - self.ticks_P[::-1],
            starts_P={ends: layers - stops_P[ends][::-1] for ends in stops_P},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRange:
    """The layers from `start` to before `stop`, taken by an offer."""

    offer: Offer
    ends: Ends
    start: int
    stop: int

    @property
    def layers(self) -> int:
        """How many these are."""
        return self.stop - self.start

    @property
    def ticks(self) -> int:
        """The time of a token in this stage."""
        return int(self.offer.ticks_P[self.stop] - self.offer.ticks_P[self.start]) + self.offer.fixed_ticks(self.ends)

    @property
    def fits(self) -> bool:
        """Whether there are any layers, and memory for them."""
        return bool(self.offer.starts_P[self.ends][self.stop] <= self.start < self.stop)
