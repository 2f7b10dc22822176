"""The tree where only the last pages of a prefix are read: what lies before may be gone, and comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.scheduling.branch import Branch, PageKey
from coordinator.scheduling.pages import PagePool, pages_between
from coordinator.scheduling.pool import runs_of
from coordinator.scheduling.prefix_tree import Match, PrefixTree

REACH_PAGES = 2
POOL_PAGES = 12


def keys(text: str) -> list[PageKey]:
    """One page of one token for each letter."""
    return [(ord(letter),) for letter in text]


class World:
    """A tree, its pool, and what each page that was given out was given out for: all letters up to its own."""

    def __init__(self) -> None:
        self.pool = PagePool(POOL_PAGES, 1)
        self.tree = PrefixTree(self.pool, REACH_PAGES)
        self.held: dict[int, str] = {}

    def leave(self, text: str, skipped: int = 0) -> None:
        """A sequence that had given back its first `skipped` pages leaves those of `text` to the tree."""
        count = len(text) - skipped
        self.tree.evict(max(0, count - self.pool.free_pages))
        runs = self.pool.extend((), count)
        pages = pages_between(runs, 0, count)
        for place, page in enumerate(pages, skipped):
            self.held[page] = text[: place + 1]
        self.tree.add(keys(text), [*[None] * skipped, *pages])
        self.pool.release(runs)

    def known(self, text: str) -> int:
        return self.tree.match(keys(text)).end_page

    def check(self) -> None:
        self.pool.check()
        kept = []
        places = {branch: place for place, branch in enumerate(self.tree.branches())}
        for branch, own_place in places.items():
            assert branch.parent is not None
            assert branch.parent is self.tree.root or own_place < places[branch.parent]
            assert len(branch.keys) == len(branch.pages) > 0
            assert branch.children or branch.pages[-1] is not None
            for place, page in enumerate(branch.pages):
                if page is not None:
                    kept.append(page)
                    assert self.held[page] == letters(branch, place)
        assert sorted(kept) == [page for page in range(POOL_PAGES) if self.pool.is_kept(page)]

    def longest(self, text: str) -> int:
        """How much of `text` can be gone on from, looked for in the plainest way."""
        there = {
            letters(branch, place)
            for branch in self.tree.branches()
            for place, page in enumerate(branch.pages)
            if page is not None
        }
        ends = range(len(text), 0, -1)
        return next((end for end in ends if all(text[: end - i] in there for i in range(min(end, REACH_PAGES)))), 0)


def letters(branch: Branch, place: int) -> str:
    """What is read up to a place of a branch."""
    text = "".join(chr(key[0]) for key in branch.keys[: place + 1])
    while branch.parent is not None:
        branch = branch.parent
        text = "".join(chr(key[0]) for key in branch.keys) + text
    return text


def test_the_last_pages_are_enough() -> None:
    world = World()
    world.leave("abcdef", skipped=3)
    match = world.tree.match(keys("abcdefg"))
    assert (match.end_page, match.skipped_pages, len(match.pages)) == (6, 4, 2)
    assert [world.known(text) for text in ("abcde", "abcd", "abx", "abcdex")] == [5, 0, 0, 5]
    world.check()


def test_a_beginning_needs_no_more_pages_than_it_has() -> None:
    world = World()
    world.leave("a")
    assert world.known("ab") == 1


def test_gaps_are_filled_by_who_has_the_pages() -> None:
    world = World()
    world.leave("abcdef", skipped=4)
    assert world.known("abcd") == 0
    world.leave("abcd")
    assert [world.known(text) for text in ("abcd", "abcdef")] == [4, 6]
    assert world.pool.cached_pages == 6
    world.check()


def test_a_running_sequence_fills_gaps_up_to_the_pages_of_others() -> None:
    world = World()
    world.leave("abcdef", skipped=4)
    runs = world.pool.extend((), 6)
    pages = pages_between(runs, 0, 6)
    world.held.update({page: "abcdef"[: place + 1] for place, page in enumerate(pages)})
    branch = world.tree.extend(world.tree.root, keys("abc"), pages[:3])
    assert branch is not None
    assert world.known("abcdef") == 6
    assert world.tree.extend(branch, keys("def"), pages[3:]) is None
    assert world.pool.cached_pages == 2, "e and f are those of the other; what was filled has an owner"
    world.pool.release(runs)
    assert world.pool.cached_pages == 6
    world.check()


def test_a_page_behind_a_running_sequence_can_be_evicted() -> None:
    world = World()
    world.leave("abcd")
    match = world.tree.match(keys("abcd"))
    world.pool.share(runs_of(match.pages))
    world.tree.evict(2)
    assert world.pool.free_pages == 10
    assert world.known("abcd") == 4
    world.pool.release(runs_of(match.pages))
    world.tree.evict(2)
    assert world.tree.branches() == ()


def test_tokens_whose_pages_are_all_gone_are_forgotten() -> None:
    world = World()
    world.leave("abcdef", skipped=4)
    world.leave("abx", skipped=2)
    world.tree.evict(2)
    assert [letters(branch, len(branch.pages) - 1) for branch in world.tree.branches()] == ["abx", "ab"]
    world.tree.evict(1)
    assert world.tree.branches() == ()


@given(st.lists(st.tuples(st.text("ab", min_size=1, max_size=7), st.integers(0, 6), st.booleans()), max_size=40))
def test_whatever_comes_the_longest_prefix_in_reach_is_found(moves: list[tuple[str, int, bool]]) -> None:
    world = World()
    owned: list[Match] = []
    for text, skipped, owns in moves:
        longest = world.longest(text)
        match = world.tree.match(keys(text))
        assert match.end_page == longest
        assert [world.held[page] for page in match.pages] == [
            text[: place + 1] for place in range(match.skipped_pages, match.end_page)
        ]
        if owns:
            world.pool.share(runs_of(match.pages))
            owned.append(match)
        elif len(text) <= world.pool.free_pages + world.pool.cached_pages:
            world.leave(text, min(skipped, len(text) - 1))
        world.check()
    for match in owned:
        world.pool.release(runs_of(match.pages))
    world.tree.evict(world.pool.cached_pages)
    assert world.tree.branches() == ()
    assert world.pool.free_pages == POOL_PAGES
