"""Who gets pages, and how many: the one place that knows the rule.

The rule. A sequence begins with the pages of the longest prefix of its log that the tree has, which it shares; its
rows start after them, but the last token is always computed, for its logits. Pages for the rest it gets for
itself. One with a limit gets at once all pages that it can come to need at a time: it then never waits for memory in
mid-answer, and its pages are as few runs as there can be. To do the same for a sequence without a limit would
reserve the whole context for it, and two people who chat would wait for each other; so such a one starts
with pages for its log and `open_ended_tokens` more, which hold most answers whole, and grows by as much again when it
has used them. Where none is free, cached pages are evicted; where none is cached either, growth fails and the
scheduler preempts the youngest sequence.

While a prompt is prefilled, its whole pages are offered to the tree as their steps come back. The next page to come is
**promised**: a sequence whose prompt goes on with it waits, for computing it twice would be no faster. So many answers
to one prompt (forks) prefill it once, as do a hundred requests with one long preamble. The pages of an answer
go to the tree when the sequence leaves it, be it ended or preempted.

Where every layer of the model has a window, a sequence **slides**: it gives back the pages behind the window and gets
as many in front, and so never has more than `Capacity.sequence_pages`. It does so when its next rows are about to go
out, for steps pass every stage in order: what is still being read may be written by the next step, and what is still
being written may be offered. In exchange for a page that another one shares there may be none, so here even a sequence
with a limit can have to wait, or be preempted.

No sequence is accepted that could not have all its pages if it were alone. That, and never preempting the oldest, is
why every sequence ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass
from typing import Literal

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.pages import PagePool, pages_between, runs_of
from coordinator.scheduling.prefix_tree import Branch, Match, PageKey, PrefixTree
from coordinator.scheduling.sequence import Sequence, SequenceRequest
from layerline.errors import PlanDoesNotFitError, PromptTooLongError, RequestError
from layerline.frames import PageRun

Admission = Literal["admitted", "no room", "prefix to come"]
Promise = tuple[Branch, PageKey]  # the page with these tokens will be offered behind this branch


@dataclass(kw_only=True, slots=True)
class _Share:
    """How a running sequence stands with the tree: `pages` pages, up to the end of `branch`, are in it."""

    keys: list[PageKey]  # the whole pages of the log when it was admitted
    branch: Branch
    pages: int
    promise: Promise | None = None
    parted: bool = False  # it goes on by itself: what comes next is in the tree already, or it has left `branch` behind


class Memory:
    """A page pool, the tree of prefixes in it, and the rule by which sequences get pages."""

    def __init__(self, pool: PagePool, capacity: Capacity) -> None:
        self.pool = pool
        self.tree = PrefixTree(pool, capacity.reach_pages)
        self.lookup_tokens = 0  # tokens of all logs that were admitted
        self.hit_tokens = 0  # those of them that were in the tree
        self._context_tokens = capacity.context_tokens
        self._open_ended_tokens = capacity.open_ended_tokens
        self._reach_pages = capacity.reach_pages
        self._sequence_pages = capacity.sequence_pages
        self._shares: dict[int, _Share] = {}
        self._promises: set[Promise] = set()
        self._awaited: dict[int, Promise] = {}  # by waiting sequence
        self._changes = 0
        self._refused: tuple[int, int] | None = None  # the sequence without room, and the changes up to then

    def most_tokens(self, request: SequenceRequest) -> int:
        """The most tokens that the answer may have, at least 1.

        PromptTooLongError if the context leaves no room for one; RequestError if the pool could never hold it.
        """
        prompt_tokens = len(request.token_ids)
        if prompt_tokens == 0:
            raise RequestError("The prompt is empty.", remedy="Give at least one token.")
        if prompt_tokens >= self._context_tokens:
            raise PromptTooLongError(
                f"The prompt has {prompt_tokens} tokens; the context holds {self._context_tokens}, prompt and answer.",
                remedy="Shorten the prompt, or ask for a longer context (--context), if the model knows one.",
            )
        most_tokens = min(request.max_tokens or self._context_tokens, self._context_tokens - prompt_tokens)
        if self.pool.pages >= self._sequence_pages:
            return most_tokens
        fitting_tokens = self.pool.tokens - prompt_tokens + 1
        if fitting_tokens < (most_tokens if request.max_tokens else 1):
            raise self._never_fits(request, most_tokens if request.max_tokens else 1)
        return min(most_tokens, fitting_tokens)

    def most_tokens_again(self, sequence: Sequence) -> int:
        """The same for a sequence that was begun in another pipeline, or waited for it.

        What it was to have there it has here, or PlanDoesNotFitError; only an answer without a limit may become
        shorter, if there is room for a further token.
        """
        request = sequence.request
        needed_tokens = sequence.max_tokens if request.max_tokens else sequence.generated + 1
        try:
            most_tokens = self.most_tokens(request)
        except RequestError:
            most_tokens = 0
        if most_tokens < needed_tokens:
            held_tokens = self._context_tokens if self.pool.pages >= self._sequence_pages else self.pool.tokens + 1
            raise PlanDoesNotFitError(
                f"The answer was begun in a pipeline that is lost, and needs a context of "
                f"{len(request.token_ids) + needed_tokens} tokens; the nodes there are now hold {held_tokens}.",
                remedy="Ask for fewer tokens, shorten the prompt, or give the nodes more memory.",
            )
        return min(most_tokens, sequence.max_tokens)

    def succeeded_by(self, pool: PagePool, capacity: Capacity) -> Memory:
        """The memory of the pipeline that comes after this one's: nothing is in it, but its counts go on."""
        memory = Memory(pool, capacity)
        memory.lookup_tokens, memory.hit_tokens = self.lookup_tokens, self.hit_tokens
        return memory

    def admit(self, sequence: Sequence) -> Admission:
        """Gives a waiting sequence the pages that it starts with, unless they are not there or promised."""
        if self._awaited.get(sequence.id) in self._promises:
            return "prefix to come"
        if self._refused == (sequence.id, self._changes):
            return "no room"
        keys = self._keys(sequence.tokens)
        match = self.tree.match(keys[: (len(sequence.tokens) - 1) // self.pool.page_tokens])
        promise = self._next_page(sequence, keys, match)
        if promise in self._promises:
            assert promise is not None
            self._awaited[sequence.id] = promise
            return "prefix to come"
        if not self._take_first(sequence, match):
            self._refused = (sequence.id, self._changes)
            return "no room"
        self._awaited.pop(sequence.id, None)
        self._shares[sequence.id] = share = _Share(keys=keys, branch=match.branch, pages=match.end_page)
        self._promise_next(share)
        return "admitted"

    def offer(self, sequence: Sequence) -> None:
        """Adds to the tree what has been computed of the log that the sequence was admitted with."""
        self._offer(sequence, sequence.computed)

    def covered_rows(self, sequence: Sequence) -> int:
        """How many of the rows that come next the sequence has pages for."""
        return sequence.end_page * self.pool.page_tokens - sequence.issued

    def slide(self, sequence: Sequence) -> None:
        """Takes back the pages that no further row of the sequence reads, for as many that are still to be written.

        What is kept is the window of the first row of its present page, so that others can go on from there.
        """
        if self._reach_pages is None:
            return
        behind = sequence.issued // self.pool.page_tokens - self._reach_pages - sequence.skipped_pages
        if behind <= 0:
            return
        self._offer(sequence, sequence.issued)  # in flight, but any step that comes to read it is behind
        self.pool.release(sequence.skip(behind))
        self._extend(sequence, behind)
        share = self._shares[sequence.id]
        if 0 < share.pages <= sequence.skipped_pages:
            share.parted = True
            self._withdraw(share)
        self._changes += 1

    def grow(self, sequence: Sequence) -> bool:
        """Gives a sequence further pages; False if none is free or cached."""
        return self._extend(sequence, self.pool.pages_for(self._open_ended_tokens))

    def release(self, sequence: Sequence) -> None:
        """Takes back all pages of a sequence that no step in flight touches; the tree keeps what it can use."""
        assert sequence.steps_in_flight == 0
        self._awaited.pop(sequence.id, None)
        share = self._shares.pop(sequence.id, None)
        if share:
            self._withdraw(share)
            self._bequeath(sequence, share)
        self.pool.release(sequence.pages)
        sequence.pages = ()
        self._changes += 1

    def void(self) -> None:
        """Nothing that any page holds can be used any more."""
        self.tree.clear()
        self._shares.clear()
        self._promises.clear()
        self._awaited.clear()
        self._changes += 1

    def check(self, sequences: Iterable[Sequence]) -> None:
        """Raises AssertionError unless each sequence is an owner of its pages, and those in the tree are kept."""
        self.pool.check()
        held: Counter[int] = Counter()
        for sequence in sequences:
            pages = pages_between(sequence.pages, 0, self.pool.pages)
            held.update(pages)
            assert len(pages) <= self._sequence_pages
        assert held == {page: owners for page in range(self.pool.pages) if (owners := self.pool.owners(page))}
        kept = sorted(page for branch in self.tree.branches() for page in branch.pages if page is not None)
        assert kept == [page for page in range(self.pool.pages) if self.pool.is_kept(page)]
        promises = [share.promise for share in self._shares.values() if share.promise]
        assert len(promises) == len(self._promises) == len(self._promises.intersection(promises))

    @property
    def _available_pages(self) -> int:
        return self.pool.free_pages + self.pool.cached_pages

    def _offer(self, sequence: Sequence, tokens: int) -> None:
        """Adds the whole pages of the first `tokens` tokens of what the sequence was admitted with."""
        share = self._shares[sequence.id]
        whole = min(tokens // self.pool.page_tokens, len(share.keys))
        if whole <= share.pages or share.parted:
            return
        pages = sequence.pages_between(share.pages, whole)
        branch = self.tree.extend(share.branch, share.keys[share.pages : whole], pages)
        if branch is None:
            share.parted = True
        else:
            share.branch, share.pages = branch, whole
        self._promise_next(share)
        self._changes += 1

    def _take_first(self, sequence: Sequence, match: Match) -> bool:
        """The pages to start with, those of `match` first; False, and no change, if there are not enough."""
        shared = runs_of(match.pages)
        self.pool.share(shared)  # so that they are not evicted for the others
        pages = self._end_page(self._first_positions(sequence), match.skipped_pages) - match.end_page
        if pages > self._available_pages:
            self.pool.release(shared)
            return False
        cached = match.end_page * self.pool.page_tokens
        sequence.begin(self._extended(shared, pages), cached=cached, skipped_pages=match.skipped_pages)
        self.lookup_tokens += len(sequence.tokens)
        self.hit_tokens += cached
        return True

    def _end_page(self, positions: int, skipped_pages: int) -> int:
        """How many pages hold `positions`, or as far as a sequence may have pages when it has given back some."""
        return min(self.pool.pages_for(positions), skipped_pages + self._sequence_pages)

    def _extend(self, sequence: Sequence, most_pages: int) -> bool:
        """Gives a sequence up to `most_pages` more, as far as it may have and can come to need them; False if none."""
        missing = self._end_page(sequence.positions, sequence.skipped_pages) - sequence.end_page
        pages = min(missing, most_pages, self._available_pages)
        sequence.pages = self._extended(sequence.pages, pages)
        return pages > 0

    def _extended(self, runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
        self.tree.evict(max(0, pages - self.pool.free_pages))
        return self.pool.extend(runs, pages)

    def _next_page(self, sequence: Sequence, keys: list[PageKey], match: Match) -> Promise | None:
        """The page that the sequence would compute first, None if it is one that it cannot share."""
        shareable = (len(sequence.tokens) - 1) // self.pool.page_tokens
        return (match.branch, keys[match.end_page]) if match.end_page < shareable else None

    def _promise_next(self, share: _Share) -> None:
        self._withdraw(share)
        if share.parted or share.pages == len(share.keys):
            return
        promise = (share.branch, share.keys[share.pages])
        if promise not in self._promises:
            self._promises.add(promise)
            share.promise = promise

    def _withdraw(self, share: _Share) -> None:
        if share.promise:
            self._promises.discard(share.promise)
            share.promise = None

    def _bequeath(self, sequence: Sequence, share: _Share) -> None:
        whole = sequence.computed // self.pool.page_tokens
        if whole > share.pages:
            keys = self._keys(sequence.tokens[: whole * self.pool.page_tokens])
            self.tree.bequeath(keys, sequence.pages_between(0, whole))

    def _keys(self, tokens: Tokens[int]) -> list[PageKey]:
        """The tokens of each whole page."""
        size = self.pool.page_tokens
        return [tuple(tokens[first : first + size]) for first in range(0, len(tokens) - size + 1, size)]

    def _first_positions(self, sequence: Sequence) -> int:
        if sequence.request.max_tokens:
            return sequence.positions
        return min(sequence.positions, len(sequence.tokens) + self._open_ended_tokens)

    def _never_fits(self, request: SequenceRequest, most_tokens: int) -> RequestError:
        prompt_tokens = len(request.token_ids)
        return RequestError(
            f"The request needs memory for {prompt_tokens} tokens of prompt and {most_tokens} of answer; "
            f"the nodes have memory for {self.pool.tokens}.",
            remedy="Ask for fewer tokens, shorten the prompt, or give the nodes more memory.",
        )
