"""The line through the times of prompt steps."""

from __future__ import annotations

import pytest

from coordinator.scheduling.chunk_cost import ChunkCost


def learned(*steps: tuple[int, float]) -> ChunkCost:
    """What is known after these steps of (rows, microseconds)."""
    cost = ChunkCost()
    for rows, us in steps:
        cost.learn(rows, us)
    return cost


def test_nothing_is_known_of_no_step_and_of_steps_alike() -> None:
    assert learned().fixed_rows is None
    assert learned((64, 900.0)).fixed_rows is None
    assert learned((64, 900.0), (64, 1100.0), (65, 1000.0)).fixed_rows is None


def test_the_line_is_found() -> None:
    assert learned((64, 1000 + 64 * 10), (128, 1000 + 128 * 10), (32, 1000 + 32 * 10)).fixed_rows == pytest.approx(100)


def test_larger_steps_that_took_no_longer_tell_nothing() -> None:
    assert learned((64, 1000.0), (128, 900.0)).fixed_rows is None


def test_a_line_that_falls_below_nothing_is_no_fixed_time() -> None:
    assert learned((64, 100.0), (128, 1000.0)).fixed_rows == 0.0


def test_what_was_seen_long_ago_fades() -> None:
    cost = learned(*[(64, 64 * 10.0), (128, 128 * 10.0)])
    for _ in range(150):
        cost.learn(64, 3000 + 64 * 10.0)
        cost.learn(128, 3000 + 128 * 10.0)
    assert cost.fixed_rows == pytest.approx(300, rel=0.05)
