"""Cuts of a layer's sides into neighbouring ranges, one for each rank: in proportion, between blocks, between heads."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

from layerline.models.head_groups import HeadGroups

COLUMNS = 32  # the feed-forward is cut at multiples of it where it can be: most storage types have blocks of 32


def proportional(total: int, weights: Sequence[int]) -> list[range]:
    """0..total - 1 cut into neighbouring ranges in proportion to `weights`, each of at least one."""
    count, sum_of_weights = len(weights), sum(weights)
    edges = [0]
    for rank, weight in enumerate(accumulate(weights), 1):
        nearest = (2 * total * weight + sum_of_weights) // (2 * sum_of_weights)
        edges.append(min(max(nearest, edges[-1] + 1), total - (count - rank)))
    return [range(first, end) for first, end in pairwise(edges)]


def column_ranges(intermediate: int, block: int, weights: Sequence[int]) -> list[range]:
    """So many columns cut in proportion to `weights`, between blocks if that can be."""
    units = (unit for unit in (block, COLUMNS) if intermediate % unit == 0 and intermediate // unit >= len(weights))
    unit = max(units, default=1)
    return [range(unit * own.start, unit * own.stop) for own in proportional(intermediate // unit, weights)]


def head_ranges(groups: HeadGroups, weights: Sequence[int], unit: int) -> list[range]:
    """The cut into neighbouring ranges, each a plain decoder's, whose slowest rank is the fastest.

    It is between multiples of `unit` heads, if that can be. Of equals the one with the fewest key/value heads in all,
    then the one with more heads on the earlier ranks.
    """
    heads, count = groups.heads, len(weights)
    costs = [math.lcm(*weights) // weight for weight in weights]

    @functools.cache
    def best(rank: int, first: int) -> tuple[int, int, tuple[int, ...]] | None:
        """(time of the slowest, key/value heads, minus the sizes) of `rank` and those after it, from head `first`."""
        if rank == count:
            return (0, 0, ()) if first == heads else None
        cuts = []
        for end in groups.ends(first):
            if end % unit and end != heads:
                continue
            rest = best(rank + 1, end)
            if rest is not None:
                slowest = max(costs[rank] * (end - first), rest[0])
                held = len(groups.read_by(range(first, end))) + rest[1]
                cuts.append((slowest, held, (first - end, *rest[2])))
        return min(cuts, default=None)

    found = best(0, 0)
    if found is None:
        assert unit > 1, "as many ranks as heads can be served in any case"
        return head_ranges(groups, weights, 1)
    edges = accumulate((-size for size in found[2]), initial=0)
    return [range(first, end) for first, end in pairwise(edges)]
