"""The tree of prefixes: which tokens have their keys and values in which pages.

It is a radix tree of whole pages, as in RadixAttention (Zheng et al., "SGLang: Efficient Execution of Structured
Language Model Programs", 2023). A branch is some pages in a row; where two sequences part, a branch is split. The tree
keeps computed pages after their sequence has released them, until the room is needed. Then the least recently used
pages are evicted first, the end of a branch before what it grows from, and never a page that a sequence owns.

If every layer of a model has a window, only the last pages of a prefix are needed to go on from it. Its sequences
release the pages behind, so that a branch can have **gaps**: tokens whose page is gone, or never came, while later
pages are there. A prefix is known if the pages that the next row reads are there.

Where a model has recurrent layers, a prefix can be gone on from only at a checkpoint (see `checkpoints`). One lies at
the end of a page, and is dropped with any page that the row after it would read.

Knows nothing of sequences, requests or steps. A page that is added must have been computed by the time that a row reads
it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.scheduling.branch import Branch, PageKey
from coordinator.scheduling.checkpoints import Checkpoints
from coordinator.scheduling.pages import PagePool


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The longest known prefix: the branch at whose end it ends, and those of its pages that can still be read.

    With recurrent layers `state` is the slot of the checkpoint at its end, None if it is empty, and the pages that are
    known may go on to the end of another branch.
    """

    branch: Branch
    skipped_pages: int  # how many pages come before `pages`
    pages: list[int]
    paged_branch: Branch
    paged_pages: int  # of the longest prefix whose pages are known
    state: int | None = None

    @property
    def end_page(self) -> int:
        """The number of pages of the whole prefix."""
        return self.skipped_pages + len(self.pages)


class PrefixTree:
    """Finds computed pages by the tokens that they hold.

    The place where a sequence ends in the tree is the end of a `Branch`. It stays right while the sequence owns the
    last page there: a split gives the upper part a new branch, and only pages without an owner are evicted. The first
    row after a prefix reads its last `reach_pages` pages, at least one; None is all of them. Each call takes time in
    proportion to the tokens given.
    """

    def __init__(self, pool: PagePool, reach_pages: int | None = None, checkpoints: Checkpoints | None = None) -> None:
        self.root = Branch(None, [], [])
        self.checkpoints = checkpoints  # None if the model has no recurrent layer
        self._pool = pool
        self._reach_pages = reach_pages
        # Least recently used first. A branch is moved to the end before its parent is, so it always comes before it.
        self._by_use: OrderedDict[Branch, None] = OrderedDict()

    def match(self, keys: Sequence[PageKey]) -> Match:
        """Finds the longest known prefix of `keys`, which then counts as used."""
        branch, pages = self._descend(self.root, keys)
        paged_pages = self._usable(pages)
        if paged_pages < len(pages):
            branch, pages = self._descend(self.root, keys[:paged_pages])
        paged_branch, end_page, state = branch, paged_pages, None
        if self.checkpoints:
            end_page, state = self._last_state(branch, paged_pages)
            branch, pages = self._descend(self.root, keys[:end_page])
        skipped = 0 if self._reach_pages is None else max(0, end_page - self._reach_pages)
        read = [page for page in pages[skipped:] if page is not None]
        return Match(
            branch=branch,
            skipped_pages=skipped,
            pages=read,
            paged_branch=paged_branch,
            paged_pages=paged_pages,
            state=state,
        )

    def extend(self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int | None]) -> Branch | None:
        """Adds `pages`, whose last is not None, behind `branch` for a sequence that owns them; returns its new end.

        If other pages hold any of the tokens, it only fills gaps and returns None: pages of the sequence behind pages
        of others would be lost with those.
        """
        end, known = self._descend(branch, keys)
        self._fill(end, pages[: len(known)])
        if any(page is not None for page in known):
            return None
        return self._grow(end, keys[len(known) :], pages[len(known) :])

    def add(self, keys: Sequence[PageKey], pages: Sequence[int | None]) -> None:
        """Adds the pages of a leaving sequence, the last not None, except those whose tokens have a page already."""
        end, known = self._descend(self.root, keys)
        self._fill(end, pages[: len(known)])
        self._grow(end, keys[len(known) :], pages[len(known) :])

    def join(
        self, branch: Branch, keys: Sequence[PageKey], pages: Sequence[int | None]
    ) -> tuple[Branch, list[int | None]]:
        """Follows `keys` from `branch` as far as the tree has them, and fills its gaps there with `pages`.

        Returns the branch that ends there, and the pages that the tree now has up to it.
        """
        end, known = self._descend(branch, keys)
        self._fill(end, pages[: len(known)])
        return end, [ours if page is None else page for page, ours in zip(known, pages, strict=False)]

    def add_state(self, keys: Sequence[PageKey], slot: int) -> None:
        """Keeps an owned slot as the checkpoint at the end of `keys`, if its pages can be read and it has none."""
        assert self.checkpoints is not None
        branch, pages = self._descend(self.root, keys)
        if keys and self._usable(pages) == len(keys):
            self.checkpoints.add(branch, len(branch.pages) - 1, slot)

    def evict(self, pages: int) -> None:
        """Frees `pages` pages, the least recently used first; at least as many must be cached."""
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
        """Forgets everything, because the pages are lost."""
        for branch in self._by_use:
            self._pool.drop(page for page in branch.pages if page is not None)
        if self.checkpoints:
            self.checkpoints.clear()
        self._by_use.clear()
        self.root = Branch(None, [], [])

    def branches(self) -> tuple[Branch, ...]:
        """All branches but the root, least recently used first."""
        return tuple(self._by_use)

    def check(self) -> None:
        """Raises AssertionError unless the pages behind every checkpoint can be read."""
        for branch in self._by_use if self.checkpoints else ():
            for place in branch.states:
                pages, upper = branch.pages[: place + 1], branch.parent
                while upper is not None:
                    pages, upper = upper.pages + pages, upper.parent
                assert self._usable(pages) == len(pages)

    def _usable(self, pages: Sequence[int | None]) -> int:
        """The length of the longest prefix of `pages` that a row can follow."""
        usable = in_a_row = 0
        for count, page in enumerate(pages, 1):
            in_a_row = 0 if page is None else in_a_row + 1
            if in_a_row >= (count if self._reach_pages is None else min(count, self._reach_pages)):
                usable = count
        return usable

    def _last_state(self, branch: Branch, end_page: int) -> tuple[int, int | None]:
        """The end of the last checkpoint up to the end of `branch`, which is page `end_page`, and its slot."""
        assert self.checkpoints is not None
        while branch.parent is not None:
            end_page -= len(branch.pages)
            if branch.states:
                place = max(branch.states)
                self.checkpoints.use(branch.states[place])
                return end_page + place + 1, branch.states[place]
            branch = branch.parent
        return 0, None

    def _descend(self, branch: Branch, keys: Sequence[PageKey]) -> tuple[Branch, list[int | None]]:
        """Follows `keys` from `branch` as far as the tree has them; the branch that ends there, and the pages passed.

        They count as used.
        """
        pages: list[int | None] = []
        while len(pages) < len(keys) and (child := branch.children.get(keys[len(pages)])):
            common = _common(child.keys, keys, len(pages))
            branch = child if common == len(child.keys) else self._split(child, common)
            pages += branch.pages
        self._touch(branch)
        return branch, pages

    def _split(self, branch: Branch, count: int) -> Branch:
        """Cuts `branch` after `count` pages and returns the new upper part; `branch` keeps its end, and so its
        meaning."""
        parent = branch.parent
        assert parent is not None
        upper = Branch(parent, branch.keys[:count], branch.pages[:count])
        parent.children[upper.keys[0]] = upper
        branch.keys, branch.pages, branch.parent = branch.keys[count:], branch.pages[count:], upper
        upper.children[branch.keys[0]] = branch
        if branch.states and self.checkpoints:
            self.checkpoints.split(branch, upper, count)
        self._by_use[upper] = None
        return upper

    def _fill(self, branch: Branch, pages: Sequence[int | None]) -> None:
        """Puts `pages` into the gaps of `branch` and of what it grows from; the last one belongs to its end."""
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
        """Grows a branch for `keys` from `branch`, if there are any; returns the last branch, which counts as used."""
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
        """Frees up to `most` pages without an owner, from the end of a branch; returns how many. They leave gaps."""
        freed: list[int] = []
        for place in reversed(range(len(branch.pages))):
            page = branch.pages[place]
            if len(freed) == most:
                break
            if page is not None and self._pool.is_cached(page):
                branch.pages[place] = None
                freed.append(page)
                if self.checkpoints:
                    end = len(branch.pages) if self._reach_pages is None else place + self._reach_pages
                    self.checkpoints.drop(branch, range(place, end))
        self._pool.drop(freed)
        return len(freed)

    def _prune(self, branch: Branch) -> None:
        """Forgets the tokens behind the last page, back to where another branch grows."""
        while branch in self._by_use and not branch.children and branch.pages[-1] is None:
            kept = next((count for count in range(len(branch.pages), 0, -1) if branch.pages[count - 1] is not None), 0)
            first_key = branch.keys[0]
            del branch.keys[kept:], branch.pages[kept:]
            if kept == 0:
                assert branch.parent is not None
                del branch.parent.children[first_key], self._by_use[branch]
                branch = branch.parent


def _common(known: Sequence[PageKey], keys: Sequence[PageKey], start: int) -> int:
    """The number of first keys that `known` has in common with `keys` from `start` on."""
    most = min(len(known), len(keys) - start)
    return next((index for index in range(most) if known[index] != keys[start + index]), most)
