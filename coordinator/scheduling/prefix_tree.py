"""The tree of prefixes: which token sequences have their keys and values in which pages.

A radix tree as in RadixAttention (Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs",
2023), of whole pages: a branch is some pages in a row, and where two sequences part, a branch is split. It keeps
computed pages when their sequence has let go of them, until the room is wanted: then the least recently used go
first, ends of branches before what they grow from, and never a page that a sequence owns.

Knows nothing of sequences, requests or steps. What is offered to it must have been computed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.scheduling.pages import PagePool

PageKey = tuple[int, ...]  # the token ids of one page


class Branch:
    """Pages in a row, the tokens of each, and what grows from their end. The root has no pages."""

    __slots__ = ("children", "keys", "pages", "parent")

    def __init__(self, parent: Branch | None, keys: list[PageKey], pages: list[int]) -> None:
        self.parent = parent
        self.keys = keys
        self.pages = pages
        self.children: dict[PageKey, Branch] = {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The longest known prefix: its pages, and the branch that it ends with."""

    branch: Branch
    pages: list[int]


class PrefixTree:
    """Computed pages by the tokens that they hold. A sequence's end in the tree is a `Branch`, read as its end.

    Such an end stays right while the sequence owns the pages up to it: a split gives the upper part a new branch,
    and only pages without an owner are evicted. Each call takes time in proportion to the tokens given.
    """

    def __init__(self, pool: PagePool) -> None:
        self.root = Branch(None, [], [])
        self._pool = pool
        # Least recently used first. A branch is moved to the end before its parent is, so it always comes before it.
        self._by_use: OrderedDict[Branch, None] = OrderedDict()

    def match(self, keys: Sequence[PageKey]) -> Match:
        """The longest prefix of `keys` that is known; it counts as used."""
        branch, pages = self._descend(self.root, keys)
        self._touch(branch)
        return Match(branch=branch, pages=pages)

    def extend(self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int]) -> Branch | None:
        """Adds `pages` behind `branch` for a sequence that goes on to own them; the branch that they become.

        None, and nothing is added, if other pages hold the same tokens: a sequence that owned pages behind those
        would keep them from being evicted without owning them.
        """
        if keys[0] in branch.children:
            return None
        return self._grow(branch, keys, pages)

    def bequeath(self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int]) -> None:
        """Adds what a leaving sequence has behind `branch`, except pages whose tokens are known already."""
        branch, known = self._descend(branch, keys)
        if len(known) < len(keys):
            branch = self._grow(branch, keys[len(known) :], pages[len(known) :])
        self._touch(branch)

    def evict(self, pages: int) -> None:
        """Frees `pages` pages, least recently used first; the pool must have as many cached."""
        bare: list[Branch] = []
        for branch in self._by_use:
            if pages == 0:
                break
            pages -= self._shorten(branch, pages)
            if not branch.pages:
                bare.append(branch)
        for branch in bare:
            del self._by_use[branch]
        assert pages == 0, f"{pages} pages more were to be evicted than are cached"

    def clear(self) -> None:
        """Forgets everything, as when the pages are void."""
        for branch in self._by_use:
            self._pool.drop(branch.pages)
        self._by_use.clear()
        self.root = Branch(None, [], [])

    def branches(self) -> tuple[Branch, ...]:
        """All branches but the root, least recently used first."""
        return tuple(self._by_use)

    def _descend(self, branch: Branch, keys: Sequence[PageKey]) -> tuple[Branch, list[int]]:
        """The branch that ends where `keys`, read from `branch` on, leave the tree, and the pages on the way."""
        pages: list[int] = []
        while len(pages) < len(keys) and (child := branch.children.get(keys[len(pages)])):
            common = _common(child.keys, keys, len(pages))
            branch = child if common == len(child.keys) else self._split(child, common)
            pages += branch.pages
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

    def _grow(self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int]) -> Branch:
        child = Branch(branch, list(keys), list(pages))
        branch.children[child.keys[0]] = child
        self._pool.keep(child.pages)
        self._touch(child)
        return child

    def _touch(self, branch: Branch) -> None:
        while branch.parent is not None:
            self._by_use[branch] = None
            self._by_use.move_to_end(branch)
            branch = branch.parent

    def _shorten(self, branch: Branch, most: int) -> int:
        """Frees up to `most` pages from the end of a branch; how many. A bare branch leaves its parent."""
        kept = len(branch.pages)
        while kept > max(0, len(branch.pages) - most) and self._pool.is_cached(branch.pages[kept - 1]):
            kept -= 1
        freed = branch.pages[kept:]
        if freed:
            assert not branch.children, "a page that others grow from was to be evicted"
        if kept == 0:
            assert branch.parent is not None
            del branch.parent.children[branch.keys[0]]
        self._pool.drop(freed)
        del branch.keys[kept:], branch.pages[kept:]
        return len(freed)


def _common(known: Sequence[PageKey], keys: Sequence[PageKey], start: int) -> int:
    """How many keys `known` and `keys` from `start` on have in common at their beginning."""
    most = min(len(known), len(keys) - start)
    return next((index for index in range(most) if known[index] != keys[start + index]), most)
