"""Several answers at the same time: what they make together, and how long each waits from token to token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from tests.bench.streams import Stream
from tests.lab.commands import LabError


def tokens_per_s_together(streams: Sequence[Stream]) -> float:
    """Tokens of all answers per second, from when each had begun until the first one ended.

    LabError if there was no such time, or only a small part of an answer's.
    """
    began_s = max(stream.times_s[0] for stream in streams)
    ended_s = min(stream.times_s[-1] for stream in streams)
    longest_s = max(stream.times_s[-1] - stream.times_s[0] for stream in streams)
    if ended_s - began_s < longest_s / 4:
        raise LabError(f"{len(streams)} answers ran together for only {max(0.0, ended_s - began_s):.1f} s")
    tokens = sum(began_s < time_s <= ended_s for stream in streams for time_s in stream.times_s)
    return tokens / (ended_s - began_s)


def gaps_s(streams: Sequence[Stream], after_s: float, until_s: float) -> list[float]:
    """The time from token to token of every answer, for those tokens that came after one time and until another."""
    return [
        later_s - earlier_s
        for stream in streams
        for earlier_s, later_s in pairwise(stream.times_s)
        if after_s < later_s <= until_s
    ]


def percentile(values: Sequence[float], percent: float) -> float:
    """The least of `values` that so many percent of them do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]
