"""How many KV pages are of use, and what speed more of them are worth.

A page is the same one on every stage, so a pipeline has no more of them than its tightest stage. Several sequences
of the whole context are of use to a server, and so is a cache of their prefixes; for these a plan may be a little
slower than the fastest. Knows no nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

SEQUENCES_OF_USE = 8  # of the whole context
MOST_SLOWER = 1.05  # the cost of a roomier choice over that of the fastest, at most
LEAST_ROOMIER = 1.25  # the pages of a roomier choice over those of the fastest, at least

Choice = TypeVar("Choice")


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced(Generic[Choice]):
    """Something to choose: what a token costs with it, in whatever unit, and the KV pages that it has room for."""

    choice: Choice
    cost: float
    pages: int


def preferred(choices: Iterable[Priced[Choice]]) -> Priced[Choice] | None:
    """The fastest, or one with much more room that costs little more; of equals the first."""
    known = tuple(choices)
    fastest = min(known, key=lambda each: each.cost, default=None)
    if fastest is None:
        return None
    roomiest = max((each for each in known if is_near(each.cost, fastest.cost)), key=lambda each: each.pages)
    return roomiest if roomiest.pages >= LEAST_ROOMIER * fastest.pages else fastest


def is_near(cost: float, fastest_cost: float) -> bool:
    """Whether so much may be paid for more pages."""
    return cost <= MOST_SLOWER * fastest_cost


def useful_pages(pages: int) -> int:
    """The KV pages that are of use where one sequence takes `pages`."""
    return SEQUENCES_OF_USE * pages
