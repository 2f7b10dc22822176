"""Where the rows of one step lie: their positions, the slots their keys and values go to, and what each span reads.

Owns the arithmetic from pages to slots, done once a step and used by every layer. A slot is one position's
place in a layer's pool: page * page_tokens + offset. Knows nothing of the tensors themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.frames import PageRun, Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One attention pass: some rows of a span over neighbouring slots.

    A causal piece has as many rows as slots, and row i sees slots 0..i; else every row sees every slot.
    """

    rows: slice  # within the span
    first_slot: int
    slots: int
    causal: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanReads:
    """The rows of a span within the step, and the passes that together show each row all it may see.

    The first piece that a row takes part in comes before the others of that row; every row has at least one.
    """

    rows: slice  # within the step
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What a pass through the layers needs to know of its rows."""

    positions_T: Tensor  # float32
    slots_T: Tensor  # int64
    spans: tuple[SpanReads, ...]

    @classmethod
    def of(cls, spans: Sequence[Span], page_tokens: int, device: torch.device) -> Step:
        """The step of these spans, whose pages have been checked."""
        reads: list[SpanReads] = []
        positions: list[int] = []
        slots: list[int] = []
        for span in spans:
            runs = _slot_runs(span, page_tokens)
            first_row = len(positions)
            positions.extend(range(span.start, span.start + span.count))
            slots.extend(_own_slots(runs, span.start))
            pieces = tuple(_pieces(runs, span.start, span.count))
            reads.append(SpanReads(rows=slice(first_row, len(positions)), pieces=pieces))
        return cls(
            positions_T=torch.tensor(positions, dtype=torch.float32, device=device),
            slots_T=torch.tensor(slots, dtype=torch.int64, device=device),
            spans=tuple(reads),
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
    """The sequence's slots up to the span's last row, neighbouring page runs made one."""
    runs: list[_SlotRun] = []
    position, end = 0, span.start + span.count
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


def _pieces(runs: list[_SlotRun], start: int, count: int) -> Iterator[Piece]:
    """The passes of a span: what came before it for all rows, its own slots causally, and for the rows after.

    A single row sees all there is, so that it takes one pass a run.
    """
    for run in runs:
        if count == 1:
            yield Piece(rows=slice(0, 1), first_slot=run.first, slots=run.count, causal=False)
            continue
        before = min(run.count, max(0, start - run.position))
        if before:
            yield Piece(rows=slice(0, count), first_slot=run.first, slots=before, causal=False)
        if before < run.count:
            first_slot, slots = run.first + before, run.count - before
            first_row, end_row = run.position + before - start, run.end_position - start
            yield Piece(rows=slice(first_row, end_row), first_slot=first_slot, slots=slots, causal=True)
            if end_row < count:
                yield Piece(rows=slice(end_row, count), first_slot=first_slot, slots=slots, causal=False)
