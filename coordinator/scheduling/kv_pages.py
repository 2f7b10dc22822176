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

No sequence is accepted that could not have all its pages if it were alone (see `limits`). For this reason, and because
the oldest is never preempted, every sequence ends.

In a model with recurrent layers a sequence needs a slot beside its pages, and a prefix is one at whose end the tree has
a checkpoint (`sequence_slots`). The tree may have more pages of its log than that. It computes their tokens again, for
the states, and then exchanges its pages for those. A state is promised as pages are: where a sequence waits for pages,
the one that promised them leaves a state where the two part, if it is not past that; and who comes when pages are there
without a state leaves it, and the next ones wait for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from coordinator.scheduling.branch import PageKey
from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.checkpoints import Checkpoints
from coordinator.scheduling.pages import PagePool, pages_between
from coordinator.scheduling.pool import runs_of
from coordinator.scheduling.prefix_tree import Match, PrefixTree
from coordinator.scheduling.promises import Promises, TreeEnd
from coordinator.scheduling.sequence import Sequence
from coordinator.scheduling.sequence_slots import SequenceSlots
from coordinator.scheduling.slots import SlotPool
from layerline.frames import PageRun, StateRun

Admission = Literal["admitted", "no room", "prefix to come"]


class KvPages:
    """The pages of one pipeline: their pool, the tree of prefixes in it, and the rule by which sequences get them."""

    def __init__(self, pool: PagePool, capacity: Capacity) -> None:
        self.pool = pool
        checkpoints = Checkpoints(SlotPool(capacity.slots)) if capacity.slots else None
        self.tree = PrefixTree(pool, capacity.reach_pages, checkpoints)
        self.slots = SequenceSlots(checkpoints.pool, self.tree, pool.page_tokens) if checkpoints else None
        self.lookup_tokens = 0  # tokens of all logs that were admitted
        self.hit_tokens = 0  # those of them that were in the tree
        self._open_ended_tokens = capacity.open_ended_tokens
        self._reach_pages = capacity.reach_pages
        self._sequence_pages = capacity.sequence_pages
        self._ends: dict[int, TreeEnd] = {}
        self._promises = Promises()
        self._changes = 0
        self._refused: tuple[int, int] | None = None  # the sequence without room, and the changes up to then

    def succeeded_by(self, pool: PagePool, capacity: Capacity) -> KvPages:
        """The pages of the next pipeline: all empty, but the counts of tokens go on."""
        pages = KvPages(pool, capacity)
        pages.lookup_tokens, pages.hit_tokens = self.lookup_tokens, self.hit_tokens
        return pages

    def admit(self, sequence: Sequence) -> Admission:
        """Gives a waiting sequence its first pages and a slot, if they can be had and no longer prefix is promised."""
        if self._promises.is_waiting(sequence.id):
            return "prefix to come"
        if self._refused == (sequence.id, self._changes):
            return "no room"
        keys = self._keys(sequence, len(sequence.tokens))
        shareable = keys[: (len(sequence.tokens) - 1) // self.pool.page_tokens]
        match = self.tree.match(shareable)
        next_key = shareable[match.paged_pages] if match.paged_pages < len(shareable) else None
        promise = self._promises.to_wait_for(match, next_key)
        if promise:
            self._promises.wait(sequence.id, promise)
            self._want_state(self._promises.maker(promise), shareable)
            return "prefix to come"
        if not self._take_first(sequence, match, len(shareable)):
            self._refused = (sequence.id, self._changes)
            return "no room"
        self._promises.leave(sequence.id)
        self._ends[sequence.id] = end = TreeEnd.of(sequence, keys, match)
        self._promise_next(end)
        return "admitted"

    def issue(self, sequence: Sequence, rows: int) -> tuple[StateRun, ...]:
        """The slots that the next `rows` rows of the sequence use; none if the model has no recurrent layer."""
        if self.slots is None:
            return ()
        to_come = self.slots.to_come(sequence.id)
        runs = self.slots.issue(sequence, rows)
        if to_come and self.slots.to_come(sequence.id) != to_come:  # there was no slot for one
            self._promise_next(self._ends[sequence.id])
        return runs

    def end_step(self) -> None:
        """Takes in that all rows of a step are chosen."""
        if self.slots is not None and self.slots.end_step():
            self._changes += 1

    def offer(self, sequence: Sequence) -> None:
        """Adds to the tree the computed pages of the log that the sequence was admitted with, and states at them."""
        self._offer(sequence, sequence.computed)
        end = self._ends[sequence.id]
        if self.slots is not None and self.slots.offer(sequence, end.keys):
            self._promise_next(end)
            self._changes += 1

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
            self._promise_next(end)
        self._changes += 1

    def grow(self, sequence: Sequence) -> bool:
        """Gives a sequence further pages; False if none is free or cached."""
        return self._extend(sequence, self.pool.pages_for(self._open_ended_tokens))

    def release(self, sequence: Sequence) -> None:
        """Takes back all that a sequence without steps in flight has; the tree keeps what it can use."""
        assert sequence.steps_in_flight == 0
        self._promises.leave(sequence.id)
        end = self._ends.pop(sequence.id, None)
        keys = None
        if end:
            self._promises.renew(end, [])
            keys = self._keys(sequence, sequence.computed)
            if len(keys) > end.pages:
                self.tree.add(keys, sequence.pages_between(0, len(keys)))
        if self.slots is not None:
            self.slots.release(sequence, keys)
        self.pool.release(sequence.pages)
        sequence.pages = ()
        self._changes += 1

    def void(self) -> None:
        """Forgets what pages and slots hold, because they are lost."""
        self.tree.clear()
        self._ends.clear()
        self._promises.clear()
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
        self._promises.check(self._ends.values())
        self.tree.check()
        if self.slots is not None:
            self.slots.check()

    @property
    def _available_pages(self) -> int:
        return self.pool.free_pages + self.pool.cached_pages

    def _offer(self, sequence: Sequence, tokens: int) -> None:
        """Adds the whole pages of the first `tokens` tokens of the log that the sequence was admitted with."""
        end = self._ends[sequence.id]
        whole = min(tokens // self.pool.page_tokens, len(end.keys))
        if whole <= end.pages or end.parted:
            return
        if self.slots is not None:
            self._join(sequence, end, whole)
        pages = sequence.pages_between(end.pages, whole)
        branch = self.tree.extend(end.branch, end.keys[end.pages : whole], pages)
        if branch is None:
            end.parted = True
        else:
            end.branch, end.pages = branch, whole
        self._promise_next(end)
        self._changes += 1

    def _join(self, sequence: Sequence, end: TreeEnd, whole: int) -> None:
        """Exchanges pages that were computed once more, for the states, for those that the tree has of these tokens.

        So the sequence owns all that lies before the pages that it adds.
        """
        ours = sequence.pages_between(end.pages, whole)
        branch, joined = self.tree.join(end.branch, end.keys[end.pages : whole], ours)
        pairs = [(own, page) for own, page in zip(ours, joined, strict=False) if own != page]
        exchanged = {own: page for own, page in pairs if own is not None and page is not None}
        if exchanged:
            self.pool.share(runs_of(exchanged.values()))
            self.pool.release(runs_of(exchanged))
            sequence.exchange(exchanged)
        end.branch, end.pages = branch, end.pages + len(joined)
        if end.pages < min(whole, end.paged_pages):
            end.paged_pages = 0  # the tree has lost them since

    def _take_first(self, sequence: Sequence, match: Match, shareable_pages: int) -> bool:
        """Gives a sequence what it begins with, after `match`; False, and no change, if there is not enough."""
        shared = runs_of(match.pages)
        self.pool.share(shared)  # so that they are not evicted for the others
        pages = self._end_page(self._first_positions(sequence), match.skipped_pages) - match.end_page
        borders = {end for end in (match.paged_pages, shareable_pages) if end > match.end_page}
        if pages > self._available_pages or not (
            self.slots is None or self.slots.admit(sequence, match.state, borders)
        ):
            self.pool.release(shared)
            return False
        cached = match.end_page * self.pool.page_tokens
        sequence.begin(self._extended(shared, pages), cached=cached, skipped_pages=match.skipped_pages)
        self.lookup_tokens += 0 if sequence.request.is_read else len(sequence.tokens)
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

    def _promise_next(self, end: TreeEnd) -> None:
        borders = self.slots.to_come(end.sequence.id) if self.slots is not None else ()
        self._promises.renew(end, end.to_come(borders))

    def _want_state(self, maker: TreeEnd, keys: list[PageKey]) -> None:
        """Has a sequence leave a state where another one, with these pages, parts from it."""
        if self.slots is not None:
            common = next((n for n, pair in enumerate(zip(maker.keys, keys, strict=False)) if pair[0] != pair[1]), None)
            self.slots.want(maker.sequence, min(len(maker.keys), len(keys)) if common is None else common)
            self._promise_next(maker)

    def _keys(self, sequence: Sequence, tokens: int) -> list[PageKey]:
        """The tokens of each whole page of the first `tokens` ones; none of a text that is read."""
        size, end = self.pool.page_tokens, 0 if sequence.request.is_read else tokens
        return [tuple(sequence.tokens[first : first + size]) for first in range(0, end - size + 1, size)]

    def _first_positions(self, sequence: Sequence) -> int:
        if sequence.request.max_tokens:
            return sequence.positions
        return min(sequence.positions, len(sequence.tokens) + self._open_ended_tokens)
