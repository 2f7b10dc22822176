from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduling.branch import Branch, PageKey
from coordinator.scheduling.pages import PagePool, pages_between
from coordinator.scheduling.pool import runs_of
from coordinator.scheduling.prefix_tree import Match, PrefixTree
from layerline.frames import PageRun


def keys(text: str) -> list[PageKey]:
    """One page of one token for each letter."""
    return [(ord(letter),) for letter in text]


class World:
    """A tree, its pool of twelve pages of one token, and sequences that come and go."""

    def __init__(self, pages: int = 12, reach_pages: int | None = None) -> None:
        self.pool = PagePool(pages, 1)
        self.tree = PrefixTree(self.pool, reach_pages)

    def leave(self, text: str) -> list[int]:
        """A sequence computes all of `text` for itself and leaves it to the tree; its pages."""
        runs = self.pool.extend((), len(text))
        pages = pages_between(runs, 0, len(text))
        self.tree.add(keys(text), pages)
        self.pool.release(runs)
        return pages

    def own(self, text: str) -> Match:
        """A sequence shares what is known of `text`."""
        match = self.tree.match(keys(text))
        self.pool.share(runs_of(match.pages))
        return match

    def known(self, text: str) -> int:
        return self.tree.match(keys(text)).end_page


def branch_letters(world: World) -> list[str]:
    return sorted("".join(chr(key[0]) for key in branch.keys) for branch in world.tree.branches())


def test_what_was_left_is_found_up_to_where_it_differs() -> None:
    world = World()
    pages = world.leave("hello")
    assert world.tree.match(keys("hello you")).pages == pages
    assert world.tree.match(keys("help")).pages == pages[:3]
    assert world.tree.match(keys("you")).pages == []
    assert world.pool.cached_pages == 5
    world.pool.check()


def test_a_branch_is_split_where_two_part_and_the_tree_keeps_no_page_twice() -> None:
    world = World()
    hello = world.leave("hello")
    helped = world.leave("helped")
    assert branch_letters(world) == ["hel", "lo", "ped"]
    assert world.tree.match(keys("helped")).pages == hello[:3] + helped[3:]
    assert world.pool.cached_pages == 8
    assert world.pool.free_pages == 4


def test_the_least_recently_used_ends_go_first() -> None:
    world = World()
    world.leave("abc")
    world.leave("abd")
    world.leave("xy")
    assert world.known("abc") == 3
    world.tree.evict(1)
    assert [world.known(text) for text in ("abd", "xy", "abc")] == [2, 2, 3]
    world.tree.evict(3)
    assert [world.known(text) for text in ("xy", "abc")] == [0, 2], "then xy, then c before what it grows from"


def test_owned_pages_and_what_they_grow_from_are_never_evicted() -> None:
    world = World()
    world.leave("abcdef")
    owned = world.own("abc")
    world.leave("xy")
    world.tree.evict(5)
    assert [world.known("abcdef"), world.known("xy")] == [3, 0]
    with pytest.raises(AssertionError, match="1 pages more"):
        world.tree.evict(1)
    world.pool.release(runs_of(owned.pages))
    world.tree.evict(3)
    assert world.pool.free_pages == 12


def test_a_running_sequence_extends_its_branch_but_not_behind_pages_of_others() -> None:
    world = World()
    world.leave("ab")
    first, second = world.own("ab"), world.own("ab")
    runs_of_first, runs_of_second = world.pool.extend((), 2), world.pool.extend((), 2)
    pages = pages_between(runs_of_first, 0, 2)
    branch = world.tree.extend(first.branch, keys("cd"), pages)
    assert branch is not None
    assert world.known("abcd") == 4
    assert world.tree.extend(second.branch, keys("cd"), pages_between(runs_of_second, 0, 2)) is None
    assert world.known("abcd") == 4
    world.tree.add(keys("abcd"), [*second.pages, *pages_between(runs_of_second, 0, 2)])
    world.pool.release(runs_of_second)
    assert world.pool.free_pages == 8, "the second's pages were not needed"


def test_the_end_of_a_running_sequence_outlives_a_split() -> None:
    world = World()
    world.leave("abcd")
    running = world.own("abcd")
    world.leave("abx")
    runs = world.pool.extend((), 1)
    assert world.tree.extend(running.branch, keys("e"), pages_between(runs, 0, 1)) is not None
    assert world.known("abcde") == 5


def test_a_cleared_tree_knows_nothing_and_owners_keep_their_pages() -> None:
    world = World()
    world.leave("abc")
    owned = world.own("ab")
    world.tree.clear()
    assert world.known("abc") == 0
    assert (world.pool.used_pages, world.pool.free_pages, world.pool.cached_pages) == (2, 10, 0)
    world.pool.release(runs_of(owned.pages))
    assert world.pool.free_pages == 12


def test_pages_between_counts_over_runs() -> None:
    runs = (PageRun(first=4, count=2), PageRun(first=9, count=3))
    assert pages_between(runs, 0, 5) == [4, 5, 9, 10, 11]
    assert pages_between(runs, 1, 3) == [5, 9]
    assert pages_between(runs, 3, 4) == [10]
    assert pages_between(runs, 5, 9) == []


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=6), st.booleans()), max_size=40))
def test_whatever_comes_the_tree_knows_prefixes_that_were_left(moves: list[tuple[str, bool]]) -> None:
    """The model: every string left is known but for ends that were evicted, and pages add up."""
    world = World()
    left: set[str] = set()
    owned: list[Match] = []
    for text, owns in moves:
        if owns:
            owned.append(world.own(text))
        missing = len(text) - world.pool.free_pages
        if missing <= world.pool.cached_pages:
            world.tree.evict(max(0, missing))
            world.leave(text)
            left |= {text[:end] for end in range(1, len(text) + 1)}
        _check(world, left)
    for match in owned:
        world.pool.release(runs_of(match.pages))
    assert world.pool.used_pages == 0
    world.tree.evict(world.pool.cached_pages)
    assert world.tree.branches() == ()
    assert world.pool.free_pages == 12


def _check(world: World, left: set[str]) -> None:
    world.pool.check()
    branches = world.tree.branches()
    pages = [page for branch in branches for page in branch.pages]
    assert len(set(pages)) == len(pages)
    assert all(len(branch.keys) == len(branch.pages) > 0 for branch in branches)
    assert {_text(branch) for branch in branches} <= left
    places = {branch: place for place, branch in enumerate(branches)}
    places[world.tree.root] = len(branches)
    assert all(branch.parent is not None and places[branch] < places[branch.parent] for branch in branches)


def _text(branch: Branch) -> str:
    letters = ""
    while branch.parent is not None:
        letters = "".join(chr(key[0]) for key in branch.keys) + letters
        branch = branch.parent
    return letters
