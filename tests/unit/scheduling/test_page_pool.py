from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduling.free_runs import FreeRuns
from coordinator.scheduling.pages import PagePool, count_pages, first_pages, pages_after
from layerline.frames import PageRun


def run(first: int, count: int) -> PageRun:
    return PageRun(first=first, count=count)


def test_fresh_pool_gives_one_run() -> None:
    pool = PagePool(10, 16)
    assert pool.extend((), 4) == (run(0, 4),)
    assert pool.free_pages == 6


def test_runs_are_cut_in_two() -> None:
    runs = (PageRun(first=4, count=2), PageRun(first=9, count=3))
    cuts = [(first_pages(runs, count), pages_after(runs, count)) for count in (0, 2, 3, 5)]
    assert cuts == [
        ((), runs),
        (runs[:1], runs[1:]),
        ((runs[0], PageRun(first=9, count=1)), (PageRun(first=10, count=2),)),
        (runs, ()),
    ]


def test_pages_for_rounds_up() -> None:
    pool = PagePool(10, 16)
    assert [pool.pages_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_growth_continues_in_place_where_the_neighbours_are_free() -> None:
    pool = PagePool(10, 16)
    first = pool.extend((), 2)
    assert pool.extend(first, 3) == (run(0, 5),)


def test_growth_jumps_over_a_neighbour() -> None:
    pool = PagePool(10, 16)
    first = pool.extend((), 2)
    pool.extend((), 3)
    assert pool.extend(first, 2) == (run(0, 2), run(5, 2))


def test_the_smallest_run_that_fits_is_taken() -> None:
    pool = PagePool(20, 16)
    small, _, large, _ = (pool.extend((), pages) for pages in (3, 2, 6, 9))
    pool.release(large)
    pool.release(small)
    assert pool.extend((), 3) == (run(0, 3),)
    assert pool.extend((), 2) == (run(5, 2),)


def test_without_a_fitting_run_the_largest_come_first() -> None:
    pool = PagePool(12, 16)
    held = [pool.extend((), pages) for pages in (2, 1, 4, 1, 3, 1)]
    for index in (0, 2, 4):
        pool.release(held[index])
    assert pool.extend((), 7) == (run(3, 4), run(8, 3))
    assert pool.free_pages == 2


def test_released_neighbours_join() -> None:
    pool = PagePool(9, 16)
    a, b, c = (pool.extend((), 3) for _ in range(3))
    pool.release(a)
    pool.release(c)
    pool.release(b)
    assert pool.extend((), 9) == (run(0, 9),)


def test_a_shared_page_is_free_after_its_last_owner() -> None:
    pool = PagePool(4, 16)
    pages = pool.extend((), 3)
    pool.share((run(0, 2),))
    pool.release(pages)
    assert pool.free_pages == 2
    pool.check()
    pool.release((run(0, 2),))
    assert pool.free_pages == 4
    pool.check()


def test_releasing_twice_and_sharing_a_free_page_are_our_bugs() -> None:
    pool = PagePool(4, 16)
    pages = pool.extend((), 1)
    pool.release(pages)
    with pytest.raises(AssertionError, match="no owner"):
        pool.release(pages)
    with pytest.raises(AssertionError, match="cannot be shared"):
        pool.share(pages)
    with pytest.raises(AssertionError, match="5 pages wanted"):
        pool.extend((), 5)


def test_first_pages_cuts_within_a_run() -> None:
    runs = (run(4, 2), run(9, 3))
    assert [first_pages(runs, pages) for pages in (1, 2, 3, 5)] == [
        (run(4, 1),),
        (run(4, 2),),
        (run(4, 2), run(9, 1)),
        runs,
    ]


def test_no_page_is_free_run() -> None:
    free = FreeRuns(2)
    assert free.take_best(5) == run(0, 2)
    assert free.take_best(1) is None
    assert free.take_at(0, 1) is None


@given(
    st.integers(1, 40), st.lists(st.tuples(st.sampled_from(["take", "grow", "share", "release"]), st.integers(0, 99)))
)
def test_every_page_is_free_or_owned(pages: int, moves: list[tuple[str, int]]) -> None:
    pool = PagePool(pages, 4)
    held: list[tuple[PageRun, ...]] = []
    for move, number in moves:
        if move == "take" and pool.free_pages:
            held.append(pool.extend((), 1 + number % pool.free_pages))
        elif held and move == "release":
            pool.release(held.pop(number % len(held)))
        elif held and move == "share":
            held.append(held[number % len(held)])
            pool.share(held[-1])
        elif held and move == "grow" and pool.free_pages:
            grown = pool.extend(held.pop(number % len(held)), 1 + number % pool.free_pages)
            held.append(grown)
        pool.check()
        assert all(count_pages(runs) == len({*_pages(runs)}) for runs in held)
    for runs in held:
        pool.release(runs)
    assert pool.free_pages == pages


def _pages(runs: tuple[PageRun, ...]) -> list[int]:
    return [page for each in runs for page in range(each.first, each.first + each.count)]


def test_a_kept_page_is_cached_without_an_owner_and_free_once_dropped() -> None:
    pool = PagePool(4, 16)
    pages = pool.extend((), 3)
    pool.keep([0, 1])
    pool.release(pages)
    assert (pool.used_pages, pool.cached_pages, pool.free_pages) == (0, 2, 2)
    pool.share((run(0, 1),))
    pool.drop([0, 1])
    assert (pool.used_pages, pool.cached_pages, pool.free_pages) == (1, 0, 3)
    pool.check()
    with pytest.raises(AssertionError, match="not kept"):
        pool.drop([0])
    with pytest.raises(AssertionError, match="cannot be kept"):
        pool.keep([3])
