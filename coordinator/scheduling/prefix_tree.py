"""The tree of prefixes: which token sequences have their keys and values in which pages.

A radix tree as in RadixAttention (Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs",
2023), of whole pages: a branch is some pages in a row, and where two sequences part, a branch is split. It keeps
computed pages when their sequence has let go of them, until the room is wanted: then the least recently used go
first, ends of branches before what they grow from, and never a page that a sequence owns.

Of a model whose every layer has a window only the last pages of a prefix are needed to go on from it. Its sequences
let go of the pages behind, so that a branch can have **gaps**: tokens whose page is gone, or never came, while
pages behind them are there. A prefix is known if the pages that the next row reads are.

Knows nothing of sequences, requests or steps. What is offered to it must have been computed by the time that a row
reads it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.scheduling.pages import PagePool

PageKey = tuple[int, ...]  # the token ids of one page


class Branch:
    """Pages in a row, None for a gap, the tokens of each, and what grows from their end. The root has no pages.

    One that nothing grows from ends with a page.
    """

    __slots__ = ("children", "keys", "pages", "parent")

    def __init__(self, parent: Branch | None, keys: list[PageKey], pages: list[int | None]) -> None:
        self.parent = parent
        self.keys = keys
        self.pages = pages
        self.children: dict[PageKey, Branch] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The longest known prefix: the branch that it ends with, and its last pages, those that can still be read."""

    branch: Branch
    skipped_pages: int  # how many come before `pages`
    pages: list[int]

    @property
    def end_page(self) -> int:
        """Pages of the whole prefix."""
        return self.skipped_pages + len(self.pages)


class PrefixTree:
    """Computed pages by the tokens that they hold. A sequence's end in the tree is a `Branch`, read as its end.

    Such an end stays right while the sequence owns the last page of it: a split gives the upper part a new branch,
    and only pages without an owner are evicted. Each call takes time in proportion to the tokens given.
    The first row after a prefix reads its last `reach_pages` pages, at least one, None: all.
    """

    def __init__(self, pool: PagePool, reach_pages: int | None = None) -> None:
        self.root = Branch(None, [], [])
        self._pool = pool
        self._reach_pages = reach_pages
        # Least recently used first. A branch is moved to the end before its parent is, so it always comes before it.
        self._by_use: OrderedDict[Branch, None] = OrderedDict()

    def match(self, keys: Sequence[PageKey]) -> Match:
        """The longest prefix of `keys` that is known; it counts as used."""
        branch, pages = self._descend(self.root, keys)
        end_page = self._usable(pages)
        if end_page < len(pages):
            branch, pages = self._descend(self.root, keys[:end_page])
        skipped = 0 if self._reach_pages is None else max(0, end_page - self._reach_pages)
        read = [page for page in pages[skipped:] if page is not None]
        return Match(branch=branch, skipped_pages=skipped, pages=read)

    def extend(self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int | None]) -> Branch | None:
        """Adds `pages`, whose last is not None, behind `branch` for a sequence that owns them; where it then ends.

        None if other pages hold any of the tokens: then only gaps are filled, for whoever has pages behind the pages
        of others cannot be sure that they stay.
        """
        end, known = self._descend(branch, keys)
        self._fill(end, pages[: len(known)])
        if any(page is not None for page in known):
            return None
        return self._grow(end, keys[len(known) :], pages[len(known) :])

    def bequeath(self, keys: Sequence[PageKey], pages: Sequence[int | None]) -> None:
        """Adds what a leaving sequence has, the last not None, except pages whose tokens have one already."""
        end, known = self._descend(self.root, keys)
        self._fill(end, pages[: len(known)])
        self._grow(end, keys[len(known) :], pages[len(known) :])

    def evict(self, pages: int) -> None:
        """Frees `pages` pages, least recently used first; the pool must have as many cached."""
        emptied: list[Branch] = []
        for branch in self._by_use:
            if pages == 0:
                break
            freed = self._empty(branch, pages)
            if freed:
                emptied.append(branch)
            pages -= freed
        for branch in emptied:
            self._prune(branch)
        assert pages == 0, f"{pages} pages more were to be evicted than are cached"

    def clear(self) -> None:
        """Forgets everything, as when the pages are void."""
        for branch in self._by_use:
            self._pool.drop(page for page in branch.pages if page is not None)
        self._by_use.clear()
        self.root = Branch(None, [], [])

    def branches(self) -> tuple[Branch, ...]:
        """All branches but the root, least recently used first."""
        return tuple(self._by_use)

    def _usable(self, pages: Sequence[int | None]) -> int:
        """How many of `pages`, from the first, make up the longest prefix that can be gone on from."""
        usable = in_a_row = 0
        for count, page in enumerate(pages, 1):
            in_a_row = 0 if page is None else in_a_row + 1
            if in_a_row >= (count if self._reach_pages is None else min(count, self._reach_pages)):
                usable = count
        return usable

    def _descend(self, branch: Branch, keys: Sequence[PageKey]) -> tuple[Branch, list[int | None]]:
        """The branch that ends where `keys`, read from `branch` on, leave the tree, and the pages on the way.

        What is on the way counts as used.
        """
        pages: list[int | None] = []
        while len(pages) < len(keys) and (child := branch.children.get(keys[len(pages)])):
            common = _common(child.keys, keys, len(pages))
            branch = child if common == len(child.keys) else self._split(child, common)
            pages += branch.pages
        self._touch(branch)
        return branch, pages

    def _split(self, branch: Branch, count: int) -> Branch:
        """Cuts `branch` after `count` pages; the new upper part. `branch` keeps its end, and so what it means."""
        parent = branch.parent
        assert parent is not None
        upper = Branch(parent, branch.keys[:count], branch.pages[:count])
        parent.children[upper.keys[0]] = upper
        branch.keys, branch.pages, branch.parent = branch.keys[count:], branch.pages[count:], upper
        upper.children[branch.keys[0]] = branch
        self._by_use[upper] = None
        return upper

    def _fill(self, branch: Branch, pages: Sequence[int | None]) -> None:
        """Puts `pages`, the last of which belongs to the end of `branch`, into the gaps there and before."""
        ours = list(pages)
        while ours:
            assert branch.parent is not None
            for place in reversed(range(len(branch.pages))):
                page = ours.pop()
                if page is not None and branch.pages[place] is None:
                    branch.pages[place] = page
                    self._pool.keep((page,))
            branch = branch.parent

    def _grow(self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int | None]) -> Branch:
        """What `branch` ends with when it has been continued by `keys`, if there are any; it counts as used."""
        if not keys:
            return branch
        child = Branch(branch, list(keys), list(pages))
        branch.children[child.keys[0]] = child
        self._pool.keep(page for page in child.pages if page is not None)
        self._touch(child)
        return child

    def _touch(self, branch: Branch) -> None:
        while branch.parent is not None:
            self._by_use[branch] = None
            self._by_use.move_to_end(branch)
            branch = branch.parent

    def _empty(self, branch: Branch, most: int) -> int:
        """Frees up to `most` pages of a branch that have no owner, from its end; how many. They leave gaps."""
        freed: list[int] = []
        for place in reversed(range(len(branch.pages))):
            page = branch.pages[place]
            if len(freed) == most:
                break
            if page is not None and self._pool.is_cached(page):
                branch.pages[place] = None
                freed.append(page)
        self._pool.drop(freed)
        return len(freed)

    def _prune(self, branch: Branch) -> None:
        """Forgets the tokens behind the last page, up to where something else grows."""
        while branch in self._by_use and not branch.children and branch.pages[-1] is None:
            kept = next((count for count in range(len(branch.pages), 0, -1) if branch.pages[count - 1] is not None), 0)
            first_key = branch.keys[0]
            del branch.keys[kept:], branch.pages[kept:]
            if kept == 0:
                assert branch.parent is not None
                del branch.parent.children[first_key], self._by_use[branch]
                branch = branch.parent


def _common(known: Sequence[PageKey], keys: Sequence[PageKey], start: int) -> int:
    """How many keys `known` and `keys` from `start` on have in common at their beginning."""
    most = min(len(known), len(keys) - start)
    return next((index for index in range(most) if known[index] != keys[start + index]), most)
