"""The cost that is found from the times of prompt steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduling.chunk_cost import KEPT_STEPS, Chunk, ChunkCost, Cost

COST = Cost(step_us=1000, row_us=10, seen_us=0.02)


def learned(*steps: tuple[Chunk, float]) -> ChunkCost:
    """What is known after these steps."""
    cost = ChunkCost()
    for chunk, us in steps:
        cost.learn(chunk, us)
    return cost


def taking(cost: Cost, chunk: Chunk) -> tuple[Chunk, float]:
    """The chunk, and what a step of it takes at that cost."""
    return chunk, cost.step_us + cost.rows_us(chunk)


def found(cost: ChunkCost) -> Cost:
    assert cost.cost is not None
    return cost.cost


def test_a_chunk_sees_what_is_before_each_of_its_rows() -> None:
    assert Chunk.of(100, 3) == Chunk(rows=3, seen=100 + 101 + 102)
    assert Chunk.joined([Chunk.of(0, 10), Chunk.of(10, 5)]) == Chunk.of(0, 15)
    assert Chunk.joined([]) == Chunk()


def test_nothing_is_known_of_no_step_and_of_steps_alike() -> None:
    assert learned().cost is None
    assert learned((Chunk.of(0, 64), 900.0)).cost is None
    assert learned(*[(Chunk.of(0, 64), 900.0)] * 5).cost is None


def test_all_three_parts_are_found() -> None:
    chunks = [Chunk.of(0, 32), Chunk.of(32, 128), Chunk.of(160, 64), Chunk.of(224, 256), Chunk.of(480, 128)]
    cost = found(learned(*(taking(COST, chunk) for chunk in chunks)))
    assert cost.step_us == pytest.approx(1000)
    assert cost.row_us == pytest.approx(10)
    assert cost.seen_us == pytest.approx(0.02)


def test_of_two_sizes_a_line_is_drawn() -> None:
    plain = Cost(step_us=1000, row_us=10)
    cost = found(learned(taking(plain, Chunk(64)), taking(plain, Chunk(128))))
    assert (cost.step_us, cost.row_us, cost.seen_us) == pytest.approx((1000, 10, 0))


def test_of_equal_steps_what_is_paid_once_is_what_the_fastest_step_took() -> None:
    cost = ChunkCost()
    cost.bound(1000)
    for start in range(0, 1280, 128):
        cost.learn(*taking(COST, Chunk.of(start, 128)))
    assert found(cost).step_us == 1000
    assert found(cost).row_us == pytest.approx(10)
    assert found(cost).seen_us == pytest.approx(0.02)


def test_steps_sized_to_take_equally_long_are_not_taken_to_cost_nothing_a_row() -> None:
    cost = ChunkCost()
    cost.bound(1000)
    for start in range(0, 2000, 200):
        rows = COST.rows_within(4000, start)
        cost.learn(Chunk.of(start, round(rows)), 5000)
    assert found(cost).step_us == 1000
    assert found(cost).row_us == pytest.approx(10, rel=0.1)


def test_larger_steps_that_took_no_longer_tell_nothing() -> None:
    assert learned((Chunk(64), 1000.0), (Chunk(128), 1000.0)).cost is None


def test_nothing_is_paid_for_less_than_nothing() -> None:
    """A line through two steps may cut below nought, and noise may say that seeing more costs less."""
    cost = found(learned((Chunk(64), 100.0), (Chunk(128), 1000.0)))
    assert cost.step_us == 100
    seeing = found(learned((Chunk(64, 9000), 1600.0), (Chunk(128, 9000), 2300.0), (Chunk(128, 99000), 2100.0)))
    assert min(seeing.step_us, seeing.row_us, seeing.seen_us) >= 0


def test_what_was_seen_long_ago_is_forgotten() -> None:
    slow = Cost(step_us=1000, row_us=90)
    cost = learned(*(taking(slow, Chunk(rows)) for rows in (64, 128)))
    for rows in (64, 128) * (KEPT_STEPS // 2):
        cost.learn(*taking(COST, Chunk(rows)))
    assert found(cost).row_us == pytest.approx(10)


def test_noise_moves_it_little() -> None:
    dice = random.Random(1)
    cost = ChunkCost()
    for start in range(0, 8000, 200):
        chunk, us = taking(COST, Chunk.of(start, dice.randrange(16, 300)))
        cost.learn(chunk, us * dice.uniform(0.95, 1.05))
    assert found(cost).row_us == pytest.approx(10, rel=0.2)
    assert found(cost).seen_us == pytest.approx(0.02, rel=0.2)


@given(
    row_us=st.floats(1e-3, 1e6),
    seen_us=st.floats(0, 1e3),
    us=st.floats(1, 1e7),
    start=st.integers(0, 1 << 20),
)
def test_rows_within_a_time_take_that_time(row_us: float, seen_us: float, us: float, start: int) -> None:
    rows = Cost(0, row_us, seen_us).rows_within(us, start)
    assert row_us * rows + seen_us * (rows * start + rows**2 / 2) == pytest.approx(us)
