"""The checkpoints of the tree: where they lie as branches are split, and what takes them along."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduling.branch import PageKey
from coordinator.scheduling.checkpoints import Checkpoints
from coordinator.scheduling.pages import PagePool, pages_between
from coordinator.scheduling.pool import runs_of
from coordinator.scheduling.prefix_tree import PrefixTree
from coordinator.scheduling.slots import SlotPool

POOL_PAGES = 12
SLOTS = 4
MOVES = ("pages", "state", "evict")


def keys(text: str) -> list[PageKey]:
    """One page of one token for each letter."""
    return [(ord(letter),) for letter in text]


class World:
    """A tree, its pools, and what each slot was given out for."""

    def __init__(self, reach_pages: int | None = None) -> None:
        self.pool = PagePool(POOL_PAGES, 1)
        self.slots = SlotPool(SLOTS)
        self.checkpoints = Checkpoints(self.slots)
        self.tree = PrefixTree(self.pool, reach_pages, self.checkpoints)
        self.held: dict[int, str] = {}

    def leave(self, text: str) -> None:
        """A sequence leaves the pages of `text` to the tree."""
        self.tree.evict(max(0, len(text) - self.pool.free_pages))
        runs = self.pool.extend((), len(text))
        self.tree.add(keys(text), pages_between(runs, 0, len(text)))
        self.pool.release(runs)

    def leave_state(self, text: str) -> None:
        if not self.slots.free:
            assert self.checkpoints.evict()
        slot = self.slots.take()
        assert slot is not None
        self.tree.add_state(keys(text), slot)
        if self.slots.is_kept(slot):
            self.held[slot] = text
        self.slots.release(slot)

    def known(self, text: str) -> tuple[str, int]:
        """The prefix that can be gone on from, and how many pages are known."""
        match = self.tree.match(keys(text))
        assert (match.state is None) == (match.end_page == 0)
        assert match.state is None or self.held[match.state] == text[: match.end_page]
        return text[: match.end_page], match.paged_pages

    def check(self) -> None:
        self.pool.check()
        self.slots.check()
        self.checkpoints.check()
        self.tree.check()


def test_a_prefix_ends_at_the_last_checkpoint_on_its_way() -> None:
    world = World()
    world.leave("abcdef")
    for text in ("ab", "abcd"):
        world.leave_state(text)
    assert [world.known(text) for text in ("abcdefg", "abcx", "a", "x")] == [("abcd", 6), ("ab", 3), ("", 1), ("", 0)]
    world.leave("abcx")
    assert [world.known(text) for text in ("abcdefg", "abcx")] == [("abcd", 6), ("ab", 4)]
    world.check()


def test_a_state_whose_pages_are_not_known_or_that_is_there_is_not_kept() -> None:
    world = World()
    world.leave("abc")
    world.leave_state("abcd")
    world.leave_state("x")
    assert world.slots.free == SLOTS
    world.leave_state("abc")
    world.leave_state("abc")
    assert world.slots.free == SLOTS - 1
    world.check()


def test_a_page_takes_the_checkpoints_at_and_behind_it_along() -> None:
    world = World()
    world.leave("abcdef")
    for text in ("ab", "abcd", "abcdef"):
        world.leave_state(text)
    world.tree.evict(3)
    assert world.known("abcdef") == ("ab", 3)
    assert world.slots.cached == 1
    world.check()


@pytest.mark.parametrize(("reach_pages", "kept"), [(1, {"ab", "abcd"}), (2, {"ab"})])
def test_with_a_window_a_page_takes_those_along_that_would_read_it(reach_pages: int, kept: set[str]) -> None:
    world = World(reach_pages)
    world.leave("abcd")
    world.leave("abcy")  # so that d is a branch by itself
    for text in ("abcd", "abc", "ab"):
        world.leave_state(text)
    world.pool.share(runs_of(world.tree.match(keys("abcd")).pages[-1:]))
    world.tree.evict(2)
    world.check()
    assert {world.held[slot] for slot in range(SLOTS) if world.slots.is_kept(slot)} == kept


def test_the_least_recently_used_one_without_an_owner_is_evicted() -> None:
    world = World()
    world.leave("abcd")
    for text in ("a", "ab", "abc"):
        world.leave_state(text)
    world.known("a")
    first = world.tree.match(keys("ab")).state
    assert first is not None
    world.slots.share(first)
    assert world.checkpoints.evict()
    assert world.known("abc") == ("ab", 3)
    assert not world.checkpoints.evict(used_before=0)
    assert world.checkpoints.evict(used_before=world.checkpoints.uses)
    assert not world.checkpoints.evict()
    world.slots.release(first)
    assert world.checkpoints.evict()
    assert world.slots.free == SLOTS
    world.check()


def test_a_cleared_tree_has_no_states_and_owners_keep_their_slots() -> None:
    world = World()
    world.leave("abc")
    world.leave_state("ab")
    world.leave_state("abc")
    state = world.tree.match(keys("ab")).state
    assert state is not None
    world.slots.share(state)
    world.tree.clear()
    assert (world.slots.used, world.slots.cached, world.slots.free) == (1, 0, SLOTS - 1)
    world.check()


@given(
    st.sampled_from([None, 1, 2]),
    st.lists(
        st.tuples(st.text("ab", min_size=1, max_size=7), st.sampled_from(["pages", "state", "evict"])), max_size=40
    ),
)
def test_whatever_comes_a_checkpoint_holds_the_state_of_its_prefix(
    reach_pages: int | None, moves: list[tuple[str, str]]
) -> None:
    world = World(reach_pages)
    for text, move in moves:
        if move == "pages":
            world.leave(text)
        elif move == "state":
            world.leave_state(text)
        else:
            world.tree.evict(min(len(text), world.pool.cached_pages))
        prefix, pages = world.known(text)
        assert len(prefix) <= pages
        world.check()
