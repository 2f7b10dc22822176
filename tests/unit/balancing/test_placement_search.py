"""Where experts should be: even loads, few moves, and never what ranks have no room for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.balancing.placement_search import (
    Ranks,
    beside_share,
    better_placement,
    popular_placement,
    rows_of_ranks,
)
from layerline.models.expert_placement import ExpertPlacement


def even(experts: int, ranks: int) -> ExpertPlacement:
    return ExpertPlacement.of_ranges(
        [range(experts * rank // ranks, experts * (rank + 1) // ranks) for rank in range(ranks)]
    )


def ranks_of(placement: ExpertPlacement, repeats: int = 0, coming: int = 2, dues: tuple[float, ...] = ()) -> Ranks:
    count = len(placement.ranks)
    rooms = tuple(len(own) + repeats for own in placement.ranks)
    return Ranks(rooms=rooms, dues=dues or (1 / count,) * count, most_coming=coming)


def busiest(placement: ExpertPlacement, rows: list[float], ranks: Ranks) -> float:
    return ranks.busiest_over_mean(rows_of_ranks(placement, rows))


def test_an_expert_that_half_of_the_rows_choose_is_repeated() -> None:
    placement, rows = even(8, 4), [7.0, 1, 1, 1, 1, 1, 1, 1]
    ranks = ranks_of(placement, repeats=1)
    found = better_placement(placement, rows, ranks)
    assert busiest(placement, rows, ranks) == pytest.approx(16 / 7)
    assert busiest(found, rows, ranks) < 1.1
    assert found.copies(8)[0] == 4


def test_without_room_the_busiest_experts_are_placed_apart() -> None:
    placement, rows = even(8, 4), [4.0, 4, 1, 1, 1, 1, 1, 1]
    ranks = ranks_of(placement)
    found = better_placement(placement, rows, ranks)
    assert busiest(placement, rows, ranks) == pytest.approx(16 / 7)
    assert busiest(found, rows, ranks) == pytest.approx(10 / 7)
    moved = [set(after) - set(before) for before, after in zip(placement.ranks, found.ranks, strict=True)]
    assert sorted(map(len, moved)) == [0, 0, 1, 1]


def test_a_slower_rank_gets_less() -> None:
    placement = even(8, 2)
    ranks = ranks_of(placement, repeats=2, dues=(0.75, 0.25))
    found = better_placement(placement, [1.0] * 8, ranks)
    assert rows_of_ranks(found, [1.0] * 8) == pytest.approx([6, 2], abs=0.6)


def test_what_is_even_stays() -> None:
    placement = even(16, 4)
    assert better_placement(placement, [3.0] * 16, ranks_of(placement, repeats=2)) == placement


@given(st.integers(2, 6), st.integers(0, 3), st.integers(1, 4), st.lists(st.floats(0, 1e6), min_size=12, max_size=24))
def test_it_never_gets_worse_and_all_rules_hold(count: int, repeats: int, coming: int, rows: list[float]) -> None:
    placement = even(len(rows), count)
    ranks = ranks_of(placement, repeats, coming)
    found = better_placement(placement, rows, ranks)
    found.check(len(rows), count)
    assert busiest(found, rows, ranks) <= busiest(placement, rows, ranks) + 1e-9
    for before, after, room in zip(placement.ranks, found.ranks, ranks.rooms, strict=True):
        assert len(after) <= room
        assert len(set(after) - set(before)) <= coming
    assert better_placement(found, rows, ranks_of(found, repeats, 0)) == found


def test_popular_experts_come_to_the_devices_few_at_a_time() -> None:
    placement = even(8, 2)
    ranks = Ranks(rooms=(4, 4), dues=(0.5, 0.5), most_coming=1, on_device=2)
    rows = [1.0, 2, 30, 40, 5, 6, 7, 80]
    shares = [beside_share(placement, rows, ranks)]
    for _ in range(3):
        placement = popular_placement(placement, rows, ranks)
        shares.append(beside_share(placement, rows, ranks))
    assert [set(own[:2]) for own in placement.ranks] == [{2, 3}, {6, 7}]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == pytest.approx(14 / 171)
    assert popular_placement(placement, rows, ranks) == placement


def test_rows_of_copies_are_shared() -> None:
    placement = ExpertPlacement(((0, 1), (1, 2), (1,)))
    assert rows_of_ranks(placement, np.array([4.0, 9.0, 2.0])).tolist() == [7.0, 5.0, 3.0]
