"""Decides which slots hold the state of a sequence, and at the ends of which pages one is left behind.

A sequence has a **working** slot: each step goes on from it and leaves the state there. A checkpoint is made by leaving
that slot behind at the end of a page and going on in another one, which costs no copy and no further step. Steps pass
every stage in order, so a slot that an earlier step still uses may be given to a later one; within one step no slot
that is written is used by a second sequence.

What is kept, as in Marconi (Pan et al., "Marconi: Prefix Caching for the Era of Hybrid LLMs", 2024), are states that
are likely to be gone on from. Two or three are for the tree, as soon as they are computed: that at the last page of the
prompt that can be shared, that where the tree had pages but no state when the sequence was admitted, and those where
waiting sequences part from it. One is the sequence's own, and moves on with each page: the **rolling** checkpoint, from
which the next turn of a chat goes on, or the sequence itself once it was preempted. The tree gets it when the sequence
leaves. It takes a free slot, or that of a checkpoint that has not been used since the sequence was admitted, and gives
it up when a waiting sequence finds no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.scheduling.branch import PageKey
from coordinator.scheduling.prefix_tree import PrefixTree
from coordinator.scheduling.sequence import Sequence
from coordinator.scheduling.slots import SlotPool
from layerline.frames import StateRun


@dataclass(frozen=True, kw_only=True, slots=True)
class _Checkpoint:
    """The state after so many whole pages of a sequence."""

    pages: int
    slot: int


@dataclass(kw_only=True, slots=True)
class _Held:
    """The slots of a running sequence, each of which it owns."""

    arrival: int  # of the sequence
    working: int
    source: int | None  # what its first rows go on from, until they are issued
    borders: set[int]  # where the tree is to get a state, counted in pages
    admitted: int  # the number of the last use of a checkpoint then
    left: list[_Checkpoint] = field(default_factory=list)  # for the tree, but perhaps not computed yet
    rolling: _Checkpoint | None = None

    @property
    def slots(self) -> list[int]:
        """All of them."""
        rolling = [self.rolling.slot] if self.rolling else []
        source = [] if self.source is None else [self.source]
        return [self.working, *source, *(each.slot for each in self.left), *rolling]


class SequenceSlots:
    """The slots of the sequences of one pipeline, whose checkpoints go to `tree`."""

    def __init__(self, pool: SlotPool, tree: PrefixTree, page_tokens: int) -> None:
        assert tree.checkpoints is not None
        self.pool = pool
        self._tree = tree
        self._checkpoints = tree.checkpoints
        self._page_tokens = page_tokens
        self._held: dict[int, _Held] = {}  # by sequence
        self._read: list[int] = []  # sources of spans in the step that is being made, which are released with it
        self._named: set[int] = set()  # all slots of these spans
        self._rolled = False  # whether one of them left a rolling checkpoint behind

    def admit(self, sequence: Sequence, state: int | None, borders: Iterable[int]) -> bool:
        """Gives a sequence that goes on from the checkpoint `state` its working slot; False if there is none."""
        if state is not None:
            self.pool.share(state)  # so that it is not evicted for the other
        working = self._take()
        if working is None:
            working = self._take_rolling()
        if working is None:
            if state is not None:
                self.pool.release(state)
            return False
        self._held[sequence.id] = _Held(
            arrival=sequence.arrival,
            working=working,
            source=state,
            borders=set(borders),
            admitted=self._checkpoints.uses,
        )
        return True

    def want(self, sequence: Sequence, pages: int) -> None:
        """Has a running sequence leave a state for the tree after so many pages, unless it is past them."""
        if pages * self._page_tokens >= max(sequence.issued, sequence.cached + 1):
            self._held[sequence.id].borders.add(pages)

    def to_come(self, sequence: int) -> list[int]:
        """Where a running sequence will leave states for the tree, counted in pages."""
        held = self._held[sequence]
        return sorted({*held.borders, *(each.pages for each in held.left)})

    def issue(self, sequence: Sequence, rows: int) -> tuple[StateRun, ...]:
        """The runs of its next rows, which are cut where a state is left behind."""
        held, end = self._held[sequence.id], sequence.issued + rows
        first, source = sequence.issued, held.working if held.source is None else held.source
        begins = first == 0
        runs: list[StateRun] = []
        for pages in self._cuts(sequence, held, end):
            left, cut = held.working, pages * self._page_tokens
            if not self._leave(held, pages):
                continue
            if cut > first:
                runs.append(StateRun(count=cut - first, source=None if begins else source, target=left))
                begins, first, source = False, cut, left
        runs.append(StateRun(count=end - first, source=None if begins else source, target=held.working))
        if held.source is not None:
            self._read.append(held.source)
            held.source = None
        self._named.update(run.target for run in runs)
        self._named.update(run.source for run in runs if run.source is not None)
        return tuple(runs)

    def end_step(self) -> bool:
        """Takes in that the step is made; whether other sequences may now have slots that they could not have in it."""
        changed = bool(self._read) or self._rolled
        for slot in self._read:
            self.pool.release(slot)
        self._read.clear()
        self._named.clear()
        self._rolled = False
        return changed

    def offer(self, sequence: Sequence, keys: list[PageKey]) -> bool:
        """Gives the tree the computed states that it was to get; `keys` are the tokens of pages. False if none was."""
        held = self._held[sequence.id]
        computed = [each for each in held.left if each.pages * self._page_tokens <= sequence.computed]
        for each in computed:
            self._tree.add_state(keys[: each.pages], each.slot)
            self.pool.release(each.slot)
            held.left.remove(each)
        return bool(computed)

    def release(self, sequence: Sequence, keys: list[PageKey] | None) -> None:
        """Takes back the slots of a sequence; the tree keeps its last state at the end of a page.

        `keys` are the tokens of all its computed pages, None if what the slots held is lost.
        """
        held = self._held.get(sequence.id)
        if held is None:
            return
        if keys is not None:
            self.offer(sequence, keys)
            last = self._last(sequence, held)
            if last:
                self._tree.add_state(keys[: last.pages], last.slot)
        del self._held[sequence.id]
        for slot in held.slots:
            self.pool.release(slot)

    def check(self) -> None:
        """Raises AssertionError unless each sequence is an owner of its slots, and those in the tree are kept."""
        self.pool.check()
        self._checkpoints.check()
        assert not self._read
        assert not self._named
        owned = sorted(slot for held in self._held.values() for slot in held.slots)
        assert owned == [slot for slot in range(self.pool.size) for _ in range(self.pool.owners(slot))]

    def holders(self) -> set[int]:
        """The sequences that have slots."""
        return set(self._held)

    def _cuts(self, sequence: Sequence, held: _Held, end: int) -> list[int]:
        """The pages after which a state is to be left behind by the rows up to position `end`.

        A state after the last of these rows is in the working slot as it is; the next rows leave it behind.
        """
        size = self._page_tokens
        wanted = {*held.borders, end // size} if self._has_prefix(sequence) else set()
        first = max(sequence.issued, sequence.cached + 1)
        return [pages for pages in sorted(wanted) if first <= pages * size < end]

    def _leave(self, held: _Held, pages: int) -> bool:
        """Leaves the working slot behind after so many pages and goes on in another; False if there is none."""
        for_tree = pages in held.borders
        held.borders.discard(pages)
        if held.rolling:
            fresh: int | None = held.rolling.slot
        else:
            fresh = self._take() if for_tree else self._take(used_before=held.admitted)
        if fresh is None:
            return False
        checkpoint = _Checkpoint(pages=pages, slot=held.working)
        held.rolling = None if for_tree else checkpoint
        if for_tree:
            held.left.append(checkpoint)
        else:
            self._rolled = True
        held.working = fresh
        return True

    def _take(self, used_before: int | None = None) -> int | None:
        """A free slot, else that of the least recently used checkpoint."""
        if not self.pool.free:
            self._checkpoints.evict(used_before)
        return self.pool.take()

    def _take_rolling(self) -> int | None:
        """The slot of a rolling checkpoint that no span of this step names, of who is the last to be preempted."""
        for held in sorted(self._held.values(), key=lambda held: held.arrival):
            if held.rolling and held.rolling.slot not in self._named:
                slot, held.rolling = held.rolling.slot, None
                return slot
        return None

    def _last(self, sequence: Sequence, held: _Held) -> _Checkpoint | None:
        """The last computed state of a sequence at the end of a page."""
        pages, rest = divmod(sequence.computed, self._page_tokens)
        if not self._has_prefix(sequence) or held.source is not None:
            return None
        if rest == 0 and 0 < sequence.computed == sequence.issued:
            return _Checkpoint(pages=pages, slot=held.working)
        return held.rolling if held.rolling and held.rolling.pages <= pages else None

    @staticmethod
    def _has_prefix(sequence: Sequence) -> bool:
        return not sequence.request.is_read
