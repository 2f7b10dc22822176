"""Decides which sequence gets pages for its keys and values, and how many. The only module that knows the rule.

The rule. A sequence begins with the pages of the longest prefix of its log that the tree has, and shares them with
their other owners. Its rows start after them, but the last token is always computed, for its logits. For the rest of
its log it gets pages of its own. A sequence with a limit gets at once all pages that it can come to need at a time: it
then never waits for pages in mid-answer, and its pages are as few runs as there can be. The same for a sequence without
a limit would reserve the whole context, and two people who chat would wait for each other. Such a sequence starts with
pages for its log and `open_ended_tokens` more, which hold most answers whole, and gets as many again when it has used
them. Where no page is free, cached pages are evicted; where none is cached either, growth fails and the scheduler
preempts the youngest sequence.

The whole pages of a prompt are offered to the tree as the steps that compute them come back. The next page to come is
**promised**: another sequence whose prompt goes on with it waits, because computing it twice would be no faster. So
many answers to one prompt (forks) prefill it once, as do a hundred requests with one long preamble. The pages of an
answer are added to the tree when the sequence ends or is preempted. A sequence that is scored begins with no prefix, as
the logits of all its rows are wanted, and adds none.

Where every layer of the model has a window, a sequence **slides**: it gives back the pages behind the window, gets as
many in front, and so never has more than `Capacity.sequence_pages`. It slides when its next rows are about to go out.
That is safe because steps pass every stage in order: a page that is still being read may be written by the next step,
and a page that is still being written may be offered. A page that others share brings none in exchange, so here even a
sequence with a limit may have to wait, or be preempted.

No sequence is accepted that could not have all its pages if it were alone. For this reason, and because the oldest is
never preempted, every sequence ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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
class _TreeEnd:
    """The end of a running sequence in the tree: its first `pages` pages are there, up to the end of `branch`."""

    keys: list[PageKey]  # the whole pages of the log when it was admitted
    branch: Branch
    pages: int
    promise: Promise | None = None
    parted: bool = False  # it adds no more: the tree has its next page already, or it has given `branch` back


class KvPages:
    """The pages of one pipeline: their pool, the tree of prefixes in it, and the rule by which sequences get them."""

    def __init__(self, pool: PagePool, capacity: Capacity) -> None:
        self.pool = pool
        self.tree = PrefixTree(pool, capacity.reach_pages)
        self.lookup_tokens = 0  # tokens of all logs that were admitted
        self.hit_tokens = 0  # those of them that were in the tree
        self._context_tokens = capacity.context_tokens
        self._open_ended_tokens = capacity.open_ended_tokens
        self._reach_pages = capacity.reach_pages
        self._sequence_pages = capacity.sequence_pages
        self._ends: dict[int, _TreeEnd] = {}
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
        """The most tokens of an answer that was begun in another pipeline, or waited for it.

        It gets here as many as it was to have there, or PlanDoesNotFitError is raised. Only an answer without a limit
        may become shorter, if there is room for a further token.
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

    def succeeded_by(self, pool: PagePool, capacity: Capacity) -> KvPages:
        """The pages of the next pipeline: all empty, but the counts of tokens go on."""
        pages = KvPages(pool, capacity)
        pages.lookup_tokens, pages.hit_tokens = self.lookup_tokens, self.hit_tokens
        return pages

    def admit(self, sequence: Sequence) -> Admission:
        """Gives a waiting sequence its first pages, if they can be had and none of them is promised."""
        if self._awaited.get(sequence.id) in self._promises:
            return "prefix to come"
        if self._refused == (sequence.id, self._changes):
            return "no room"
        keys = self._keys(sequence, len(sequence.tokens))
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
        self._ends[sequence.id] = end = _TreeEnd(keys=keys, branch=match.branch, pages=match.end_page)
        self._promise_next(end)
        return "admitted"

    def offer(self, sequence: Sequence) -> None:
        """Adds to the tree the computed pages of the log that the sequence was admitted with."""
        self._offer(sequence, sequence.computed)

    def covered_rows(self, sequence: Sequence) -> int:
        """The number of next rows that the sequence has pages for."""
        return sequence.end_page * self.pool.page_tokens - sequence.issued

    def slide(self, sequence: Sequence) -> None:
        """Takes back the pages that no further row of the sequence reads, and gives it as many in front.

        The sequence keeps the window of the first row of its present page, so that others can go on from there.
        """
        if self._reach_pages is None:
            return
        behind = sequence.issued // self.pool.page_tokens - self._reach_pages - sequence.skipped_pages
        if behind <= 0:
            return
        self._offer(sequence, sequence.issued)  # part of it is in flight, but a step that reads it comes after that
        self.pool.release(sequence.skip(behind))
        self._extend(sequence, behind)
        end = self._ends[sequence.id]
        if 0 < end.pages <= sequence.skipped_pages:
            end.parted = True
            self._withdraw(end)
        self._changes += 1

    def grow(self, sequence: Sequence) -> bool:
        """Gives a sequence further pages; False if none is free or cached."""
        return self._extend(sequence, self.pool.pages_for(self._open_ended_tokens))

    def release(self, sequence: Sequence) -> None:
        """Takes back all pages of a sequence without steps in flight; the tree keeps those that it can use."""
        assert sequence.steps_in_flight == 0
        self._awaited.pop(sequence.id, None)
        end = self._ends.pop(sequence.id, None)
        if end:
            self._withdraw(end)
            self._add_left(sequence, end)
        self.pool.release(sequence.pages)
        sequence.pages = ()
        self._changes += 1

    def void(self) -> None:
        """Forgets what the pages hold, because they are lost."""
        self.tree.clear()
        self._ends.clear()
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
        promises = [end.promise for end in self._ends.values() if end.promise]
        assert len(promises) == len(self._promises) == len(self._promises.intersection(promises))

    @property
    def _available_pages(self) -> int:
        return self.pool.free_pages + self.pool.cached_pages

    def _offer(self, sequence: Sequence, tokens: int) -> None:
        """Adds the whole pages of the first `tokens` tokens of the log that the sequence was admitted with."""
        end = self._ends[sequence.id]
        whole = min(tokens // self.pool.page_tokens, len(end.keys))
        if whole <= end.pages or end.parted:
            return
        pages = sequence.pages_between(end.pages, whole)
        branch = self.tree.extend(end.branch, end.keys[end.pages : whole], pages)
        if branch is None:
            end.parted = True
        else:
            end.branch, end.pages = branch, whole
        self._promise_next(end)
        self._changes += 1

    def _take_first(self, sequence: Sequence, match: Match) -> bool:
        """Gives a sequence its first pages, after those of `match`; False, and no change, if there are not enough."""
        shared = runs_of(match.pages)
        self.pool.share(shared)  # so that they are not evicted for the others
        pages = self._end_page(self._first_positions(sequence), match.skipped_pages) - match.end_page
        if pages > self._available_pages:
            self.pool.release(shared)
            return False
        cached = match.end_page * self.pool.page_tokens
        sequence.begin(self._extended(shared, pages), cached=cached, skipped_pages=match.skipped_pages)
        self.lookup_tokens += 0 if sequence.request.is_scored else len(sequence.tokens)
        self.hit_tokens += cached
        return True

    def _end_page(self, positions: int, skipped_pages: int) -> int:
        """Pages of a sequence with `positions`, at most as many as it may have beside those it has given back."""
        return min(self.pool.pages_for(positions), skipped_pages + self._sequence_pages)

    def _extend(self, sequence: Sequence, most_pages: int) -> bool:
        """Gives a sequence up to `most_pages` further pages that it may have and can come to need; False if none."""
        missing = self._end_page(sequence.positions, sequence.skipped_pages) - sequence.end_page
        pages = min(missing, most_pages, self._available_pages)
        sequence.pages = self._extended(sequence.pages, pages)
        return pages > 0

    def _extended(self, runs: tuple[PageRun, ...], pages: int) -> tuple[PageRun, ...]:
        self.tree.evict(max(0, pages - self.pool.free_pages))
        return self.pool.extend(runs, pages)

    def _next_page(self, sequence: Sequence, keys: list[PageKey], match: Match) -> Promise | None:
        """The page that the sequence would compute first; None if that page cannot be shared."""
        shareable = min(len(keys), (len(sequence.tokens) - 1) // self.pool.page_tokens)
        return (match.branch, keys[match.end_page]) if match.end_page < shareable else None

    def _promise_next(self, end: _TreeEnd) -> None:
        self._withdraw(end)
        if end.parted or end.pages == len(end.keys):
            return
        promise = (end.branch, end.keys[end.pages])
        if promise not in self._promises:
            self._promises.add(promise)
            end.promise = promise

    def _withdraw(self, end: _TreeEnd) -> None:
        if end.promise:
            self._promises.discard(end.promise)
            end.promise = None

    def _add_left(self, sequence: Sequence, end: _TreeEnd) -> None:
        keys = self._keys(sequence, sequence.computed)
        if len(keys) > end.pages:
            self.tree.add(keys, sequence.pages_between(0, len(keys)))

    def _keys(self, sequence: Sequence, tokens: int) -> list[PageKey]:
        """The tokens of each whole page of the first `tokens` ones; none of a sequence that is scored."""
        size, end = self.pool.page_tokens, 0 if sequence.request.is_scored else tokens
        return [tuple(sequence.tokens[first : first + size]) for first in range(0, end - size + 1, size)]

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
