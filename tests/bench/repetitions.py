"""Measuring several things in turn, again and again, so that whatever else the machine does hits them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TypeVar

Measured = TypeVar("Measured")


def in_turn(measures: Sequence[Callable[[int], Measured]], repeats: int) -> list[list[Measured]]:
    """What each of `measures` gave at each repetition; every other repetition goes through them backwards.

    Each is called with the number of the repetition, so that no two need ask the same.
    """
    found: list[list[Measured]] = [[] for _ in measures]
    for repetition in range(repeats):
        order = list(range(len(measures)))
        for index in order if repetition % 2 == 0 else reversed(order):
            found[index].append(measures[index](repetition))
    return found


def ratio_of(above: Sequence[float], below: Sequence[float]) -> float:
    """The median of the ratios within each repetition: what drifts over the run cancels out."""
    return median(one / other for one, other in zip(above, below, strict=True))
