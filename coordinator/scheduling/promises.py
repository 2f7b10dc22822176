"""What sequences that run have promised to the tree of prefixes, and who waits for it.

Computing twice what another sequence is about to offer would be no faster than to wait for it. So a running sequence
promises the next page that it will offer and, in a model with recurrent layers, the states that it will leave where
the tree has pages but no checkpoint. A promise is withdrawn when it is kept, cannot be kept, or the sequence leaves:
nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.scheduling.branch import Branch, PageKey
from coordinator.scheduling.prefix_tree import Match
from coordinator.scheduling.sequence import Sequence

Promise = tuple[Branch, PageKey]  # the page with these tokens will be offered behind this branch
A_STATE: PageKey = ()  # instead of tokens: the state at the end of the branch will be


@dataclass(kw_only=True, slots=True)
class TreeEnd:
    """The end of a running sequence in the tree: its first `pages` pages are there, up to the end of `branch`.

    With recurrent layers it may have begun at a checkpoint behind which the tree had more pages, up to `paged_pages` at
    the end of `paged_branch`; it computes the states of those once more.
    """

    sequence: Sequence
    keys: list[PageKey]  # the whole pages of the log when it was admitted
    branch: Branch
    pages: int
    paged_branch: Branch
    paged_pages: int
    promises: list[Promise] = field(default_factory=list)
    parted: bool = False  # it adds no more: the tree has its next page already, or it has given `branch` back

    @classmethod
    def of(cls, sequence: Sequence, keys: list[PageKey], match: Match) -> TreeEnd:
        """That of a sequence which is admitted with `match`."""
        return cls(
            sequence=sequence,
            keys=keys,
            branch=match.branch,
            pages=match.end_page,
            paged_branch=match.paged_branch,
            paged_pages=match.paged_pages,
        )

    def to_come(self, borders: Iterable[int]) -> list[Promise]:
        """What it can promise: a page and, at those of the borders, counted in pages, that the tree has, states."""
        if self.parted:
            return []
        ahead = self.pages < self.paged_pages
        branch, pages = (self.paged_branch, self.paged_pages) if ahead else (self.branch, self.pages)
        page = [(branch, self.keys[pages])] if pages < len(self.keys) else []
        places = {self.paged_pages: self.paged_branch, self.pages: self.branch}
        return page + [(places[border], A_STATE) for border in borders if border in places]


class Promises:
    """The promises of the running sequences, each made by one of them, and those that waiting sequences wait for."""

    def __init__(self) -> None:
        self._ends: dict[Promise, TreeEnd] = {}
        self._awaited: dict[int, Promise] = {}  # by waiting sequence

    def renew(self, end: TreeEnd, promises: list[Promise]) -> None:
        """Replaces what a sequence has promised, except what another one has promised already."""
        if promises == end.promises:
            return
        for promise in end.promises:
            del self._ends[promise]
        end.promises = [promise for promise in promises if promise not in self._ends]
        self._ends.update(dict.fromkeys(end.promises, end))

    def to_wait_for(self, match: Match, next_key: PageKey | None) -> Promise | None:
        """The promise by which the prefix of `match` would become longer; `next_key` is of the page behind it, if any.

        A page behind all known ones, else a state on the way to their end.
        """
        if next_key is not None and (match.paged_branch, next_key) in self._ends:
            return match.paged_branch, next_key
        branch: Branch | None = match.paged_branch
        while branch is not None and branch is not match.branch:
            if (branch, A_STATE) in self._ends:
                return branch, A_STATE
            branch = branch.parent
        return None

    def maker(self, promise: Promise) -> TreeEnd:
        """Where the sequence that has made a promise is in the tree."""
        return self._ends[promise]

    def wait(self, sequence: int, promise: Promise) -> None:
        """Takes in that a sequence waits for a promise."""
        self._awaited[sequence] = promise

    def is_waiting(self, sequence: int) -> bool:
        """Whether what a sequence waits for is still to come."""
        return self._awaited.get(sequence) in self._ends

    def leave(self, sequence: int) -> None:
        """Takes in that a sequence waits no more."""
        self._awaited.pop(sequence, None)

    def clear(self) -> None:
        """Forgets everything, because the tree is empty."""
        self._ends.clear()
        self._awaited.clear()

    def check(self, ends: Iterable[TreeEnd]) -> None:
        """Raises AssertionError unless the promises are those of `ends`."""
        assert self._ends == {promise: end for end in ends for promise in end.promises}
