"""Where the rows of one step lie: their positions, the slots their keys and values go to, and what they read.

Owns the arithmetic from pages to slots, done once a step and used by every layer. A slot is one position's
place in a layer's pool: page * page_tokens + offset. Knows nothing of the tensors themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from layerline.frames import PageRun, Span

GROUPED_ROWS = 512  # so that the products of many pieces are not all in memory at once


Sees = Literal["all", "back", "ahead"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One attention pass: some neighbouring rows of one sequence over neighbouring slots.

    Row i sees all slots or, where there are as many rows as slots, those back to the first (0..i), or those ahead
    to the last (i..): what a window does not reach back to lies behind.
    """

    first_row: int  # within the step
    rows: int
    first_slot: int
    slots: int
    sees: Sees = "all"

    @property
    def row_range(self) -> range:
        """The rows, as numbers within the step."""
        return range(self.first_row, self.first_row + self.rows)


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a row sees: so many positions, or from the last multiple of `chunk_tokens` on; 0: no such bound."""

    window_tokens: int = 0
    chunk_tokens: int = 0

    def first_seen(self, position: int) -> int:
        """The first position that the row at `position` sees, if there is one there."""
        if self.window_tokens:
            return position - self.window_tokens + 1
        return position - position % self.chunk_tokens if self.chunk_tokens else 0

    def rows_together(self, position: int, rows: int) -> int:
        """How many of so many rows from `position` on have passes in common.

        Through a window they are no more than it has tokens, else those that see from one position on.
        """
        if self.window_tokens:
            return min(rows, self.window_tokens)
        return min(rows, self.chunk_tokens - position % self.chunk_tokens) if self.chunk_tokens else rows


ALL = Reach()


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Pieces whose products come together: each of their rows, one after the other, is row `rows_N` of the step.

    The groups of a step are taken in order; what came of all rows so far is, row by row, in front of the pieces of
    each but the first. `rows_N` is None if there is one group and its rows are those of the step, in order.
    """

    pieces: tuple[Piece, ...]
    rows_N: Tensor | None  # int64


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPieces:
    """What a pass through the layers needs to know of its rows.

    For each reach that a layer of the stage has the pieces together show each row all that it may see.
    """

    positions_T: Tensor  # float32
    slots_T: Tensor  # int64
    groups: Mapping[Reach, tuple[Group, ...]]

    @classmethod
    def of(
        cls,
        spans: Sequence[Span],
        page_tokens: int,
        *,
        reaches: Iterable[Reach] = (ALL,),
        most_slots: int,
        device: torch.device,
    ) -> StepPieces:
        """The step of these spans, whose pages have been checked. Only pieces that see all are cut to `most_slots`."""
        pieces: dict[Reach, list[Piece]] = {reach: [] for reach in reaches}
        positions: list[int] = []
        slots: list[int] = []
        for span in spans:
            runs = _slot_runs(span, page_tokens)
            for reach, listed in pieces.items():
                listed.extend(_span_pieces(runs, len(positions), span, reach, most_slots))
            positions.extend(range(span.start, span.start + span.count))
            slots.extend(_own_slots(runs, span.start))
        return cls(
            positions_T=torch.tensor(positions, dtype=torch.float32, device=device),
            slots_T=torch.tensor(slots, dtype=torch.int64, device=device),
            groups={reach: tuple(_groups(listed, len(positions), device)) for reach, listed in pieces.items()},
        )


@dataclass(frozen=True, slots=True)
class _SlotRun:
    """Neighbouring slots and the position that the first of them holds."""

    position: int
    first: int
    count: int

    @property
    def end_position(self) -> int:
        return self.position + self.count


def _slot_runs(span: Span, page_tokens: int) -> list[_SlotRun]:
    """The slots that the sequence still has up to the span's last row, neighbouring page runs made one."""
    runs: list[_SlotRun] = []
    position, end = span.skipped_pages * page_tokens, span.start + span.count
    for pages in _coalesced(span.pages):
        count = min(pages.count * page_tokens, end - position)
        if count <= 0:
            break
        runs.append(_SlotRun(position, pages.first * page_tokens, count))
        position += count
    return runs


def _coalesced(pages: Sequence[PageRun]) -> list[PageRun]:
    joined = [pages[0]]
    for run in pages[1:]:
        last = joined[-1]
        if run.first == last.first + last.count:
            joined[-1] = PageRun(first=last.first, count=last.count + run.count)
        else:
            joined.append(run)
    return joined


def _own_slots(runs: list[_SlotRun], start: int) -> Iterator[int]:
    for run in runs:
        skipped = max(0, start - run.position)
        yield from range(run.first + skipped, run.first + run.count)


def _span_pieces(runs: list[_SlotRun], first_row: int, span: Span, reach: Reach, most_slots: int) -> Iterator[Piece]:
    """The passes of a span."""
    skipped = 0
    while skipped < span.count:
        start = span.start + skipped
        rows = reach.rows_together(start, span.count - skipped)
        reached = list(_between(runs, reach.first_seen(start), start + rows))
        yield from _pieces(reached, first_row + skipped, start, rows, reach.window_tokens, most_slots)
        skipped += rows


def _between(runs: list[_SlotRun], position: int, end_position: int) -> Iterator[_SlotRun]:
    for run in runs:
        begin, end = max(position, run.position), min(end_position, run.end_position)
        if begin < end:
            yield _SlotRun(begin, run.first + begin - run.position, end - begin)


def _pieces(
    runs: list[_SlotRun], first_row: int, start: int, count: int, window: int, most_slots: int
) -> Iterator[Piece]:
    """The passes of `count` rows: what came before them for all rows, their own slots back, and for the rows after.

    What leaves the window while the rows pass is seen ahead, and by the rows before. A single row sees all there is,
    so that it takes one pass a run.
    """
    for run in runs:
        leaving = min(run.count, max(0, start + count - window - run.position)) if window else 0
        if leaving:
            seen = run.position + window - 1 - start
            yield from _blocks(first_row, seen, run.first, leaving, most_slots)
            yield Piece(first_row + seen, leaving, run.first, leaving, "ahead")
        before = run.count if count == 1 else min(run.count, max(0, start - run.position))
        yield from _blocks(first_row, count, run.first + leaving, before - leaving, most_slots)
        if before < run.count:
            first_slot, slots = run.first + before, run.count - before
            skipped, seen = run.position + before - start, run.end_position - start
            yield Piece(first_row + skipped, slots, first_slot, slots, "back")
            yield from _blocks(first_row + seen, count - seen, first_slot, slots, most_slots)


def _blocks(first_row: int, rows: int, first_slot: int, slots: int, most_slots: int) -> Iterator[Piece]:
    if rows:
        for skipped in range(0, slots, most_slots):
            yield Piece(first_row, rows, first_slot + skipped, min(most_slots, slots - skipped))


def _groups(pieces: Sequence[Piece], rows: int, device: torch.device) -> Iterator[Group]:
    """The pieces in groups of at most GROUPED_ROWS rows, or thrice those of the step."""
    if [row for piece in pieces for row in piece.row_range] == list(range(rows)):
        yield Group(pieces=tuple(pieces), rows_N=None)
        return
    most_rows = max(GROUPED_ROWS, 3 * rows)
    begun: list[Piece] = []
    listed: list[int] = []
    for piece in pieces:
        if begun and len(listed) + piece.rows > most_rows:
            yield Group(pieces=tuple(begun), rows_N=torch.tensor(listed, device=device))
            begun, listed = [], list(range(rows))
        begun.append(piece)
        listed.extend(piece.row_range)
    yield Group(pieces=tuple(begun), rows_N=torch.tensor(listed, device=device))
