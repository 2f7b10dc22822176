"""Which experts of a layer each rank of a stage has, where experts are spread: whole, and some of them more than once.

Every rank knows the placement of all, so that all agree on who computes what without telling each other. Knows no
weights and no counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerline.checks import require
from layerline.sharing import MOST_COMING, MOST_EXPERTS

NOT_HERE = -1


@dataclass(frozen=True, slots=True)
class ExpertPlacement:
    """The experts of each rank, in whatever order; where some of a rank's lie on another device, the first do not."""

    ranks: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        require(len(self.ranks) > 0, "a placement of experts needs a rank")
        for own in self.ranks:
            require(len(set(own)) == len(own), "a rank has an expert twice")
            require(all(0 <= expert < MOST_EXPERTS for expert in own), "an expert is out of range")

    @classmethod
    def of_ranges(cls, ranges: Sequence[range]) -> ExpertPlacement:
        """Neighbouring experts on each rank."""
        return cls(tuple(tuple(own) for own in ranges))

    def check(self, experts: int, ranks: int) -> None:
        """ValueError unless this is a placement of so many experts on so many ranks."""
        require(len(self.ranks) == ranks, f"a placement on {len(self.ranks)} ranks instead of {ranks}")
        placed = {expert for own in self.ranks for expert in own}
        require(placed == set(range(experts)), f"a placement of other experts than 0 to {experts - 1}")

    def check_coming(self, before: ExpertPlacement, on_device: int | None = None) -> None:
        """ValueError if more experts come to a rank than it has room for beside those that it has.

        Where some lie beside the devices the first `on_device` of a rank do not, and some may come to either side.
        """
        sides = [slice(None)] if on_device is None else [slice(on_device), slice(on_device, None)]
        coming = [
            len(set(after[side]) - set(own[side]))
            for own, after in zip(before.ranks, self.ranks, strict=True)
            for side in sides
        ]
        require(max(coming) <= MOST_COMING, f"{max(coming)} experts come to a rank at once, of at most {MOST_COMING}")

    def copies(self, experts: int) -> list[int]:
        """On how many ranks each of so many experts is."""
        counts = [0] * experts
        for own in self.ranks:
            for expert in own:
                counts[expert] += 1
        return counts

    def turns(self, rank: int, experts: int) -> list[int]:
        """Of each expert the number that this rank has among those that have it, or NOT_HERE.

        Of the rows of an expert with several copies this rank computes those whose position in their sequence, modulo
        the number of copies, is its turn: nothing that depends on the rows beside them.
        """
        turns, own = [0] * experts, set(self.ranks[rank])
        for before in self.ranks[:rank]:
            for expert in before:
                turns[expert] += 1
        return [turn if expert in own else NOT_HERE for expert, turn in enumerate(turns)]
