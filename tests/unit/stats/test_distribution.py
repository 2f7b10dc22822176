"""Percentiles out of classes are near those of the durations themselves."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.stats.distribution import Distribution

DURATIONS = st.lists(st.floats(0, 1e11), min_size=1, max_size=200)


def distribution(durations_us: list[float]) -> Distribution:
    made = Distribution()
    for duration_us in durations_us:
        made.add(duration_us)
    return made


def exact_quantile(durations_us: list[float], share: float) -> float:
    return sorted(durations_us)[max(1, math.ceil(share * len(durations_us))) - 1]


@given(DURATIONS, st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_to_within_five_percent_or_a_microsecond(durations_us: list[float], share: float) -> None:
    exact = exact_quantile(durations_us, share)
    assert distribution(durations_us).quantile_us(share) == pytest.approx(exact, rel=0.05, abs=1.0)


@given(DURATIONS, DURATIONS)
def test_two_merged_are_as_one(some: list[float], more: list[float]) -> None:
    merged, together = distribution(some), distribution(some + more)
    merged.merge(distribution(more))
    assert (merged.count, merged.quantile_us(0.5), merged.quantile_us(0.99)) == (
        together.count,
        together.quantile_us(0.5),
        together.quantile_us(0.99),
    )
    assert merged.total_us == pytest.approx(together.total_us)


def test_nothing_has_no_durations() -> None:
    stats = Distribution().stats()
    assert (stats.count, stats.total_s, stats.mean_s, stats.p50_s, stats.p99_s) == (0, 0.0, 0.0, 0.0, 0.0)


def test_stats_are_in_seconds_and_exact_for_what_is_alike() -> None:
    stats = distribution([250_000.0] * 4).stats()
    assert (stats.count, stats.total_s, stats.mean_s, stats.p50_s, stats.p99_s) == (4, 1.0, 0.25, 0.25, 0.25)


def test_any_number_of_durations_takes_bounded_memory() -> None:
    many = distribution([random.Random(seed).uniform(0, 86_400e6) for seed in range(3000)])
    assert len(many._classes) < 270
