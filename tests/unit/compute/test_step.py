"""From spans and pages to slots and attention passes."""

from __future__ import annotations

import torch

from layerline.frames import PageRun, Span
from node.model.step import Piece, Step

CPU = torch.device("cpu")


def step_of(*spans: Span, page_tokens: int = 4) -> Step:
    return Step.of(spans, page_tokens, CPU)


def span(start: int, count: int, *pages: tuple[int, int], sequence: int = 0) -> Span:
    runs = tuple(PageRun(first=first, count=run_count) for first, run_count in pages)
    return Span(sequence=sequence, start=start, count=count, pages=runs)


def piece(first_row: int, end_row: int, first_slot: int, slots: int, *, causal: bool = False) -> Piece:
    return Piece(rows=slice(first_row, end_row), first_slot=first_slot, slots=slots, causal=causal)


def test_one_row_on_one_run_is_one_pass() -> None:
    step = step_of(span(6, 1, (2, 2)))
    assert step.positions_T.tolist() == [6]
    assert step.slots_T.tolist() == [14]
    assert step.spans[0].pieces == (piece(0, 1, 8, 7),)


def test_neighbouring_page_runs_become_one() -> None:
    assert step_of(span(9, 1, (2, 1), (3, 1), (4, 2))).spans[0].pieces == (piece(0, 1, 8, 10),)


def test_one_row_on_scattered_runs_takes_a_pass_each() -> None:
    step = step_of(span(9, 1, (5, 1), (1, 1), (0, 1)))
    assert step.slots_T.tolist() == [1]
    assert step.spans[0].pieces == (piece(0, 1, 20, 4), piece(0, 1, 4, 4), piece(0, 1, 0, 2))


def test_the_first_chunk_is_one_causal_pass() -> None:
    assert step_of(span(0, 7, (3, 2))).spans[0].pieces == (piece(0, 7, 12, 7, causal=True),)


def test_a_later_chunk_sees_what_came_before_and_itself_causally() -> None:
    step = step_of(span(5, 3, (3, 2)))
    assert step.slots_T.tolist() == [17, 18, 19]
    assert step.spans[0].pieces == (piece(0, 3, 12, 5), piece(0, 3, 17, 3, causal=True))


def test_a_chunk_over_scattered_runs() -> None:
    step = step_of(span(2, 8, (7, 1), (0, 1), (4, 1)))
    assert step.slots_T.tolist() == [30, 31, 0, 1, 2, 3, 16, 17]
    assert step.spans[0].pieces == (
        piece(0, 8, 28, 2),
        piece(0, 2, 30, 2, causal=True),
        piece(2, 8, 30, 2),
        piece(2, 6, 0, 4, causal=True),
        piece(6, 8, 0, 4),
        piece(6, 8, 16, 2, causal=True),
    )


def test_pages_beyond_the_last_row_are_not_read() -> None:
    assert step_of(span(0, 1, (3, 2), (9, 1))).spans[0].pieces == (piece(0, 1, 12, 1),)


def test_spans_follow_each_other_in_the_rows() -> None:
    step = step_of(span(4, 1, (0, 2)), span(0, 3, (5, 1), sequence=1))
    assert step.positions_T.tolist() == [4.0, 0.0, 1.0, 2.0]
    assert step.slots_T.tolist() == [4, 20, 21, 22]
    assert [reads.rows for reads in step.spans] == [slice(0, 1), slice(1, 4)]
