"""From spans and pages to slots and attention passes."""

from __future__ import annotations

import pytest
import torch

from layerline.frames import PageRun, Span
from node.model import step
from node.model.step import Piece, Step

CPU = torch.device("cpu")
ANY = 1 << 40


def step_of(*spans: Span, page_tokens: int = 4, most_slots: int = ANY) -> Step:
    return Step.of(spans, page_tokens, most_slots, CPU)


def pieces_of(*spans: Span, most_slots: int = ANY) -> list[Piece]:
    return [piece for group in step_of(*spans, most_slots=most_slots).groups for piece in group.pieces]


def span(start: int, count: int, *pages: tuple[int, int], sequence: int = 0) -> Span:
    runs = tuple(PageRun(first=first, count=run_count) for first, run_count in pages)
    return Span(sequence=sequence, start=start, count=count, pages=runs)


def piece(first_row: int, end_row: int, first_slot: int, slots: int, *, causal: bool = False) -> Piece:
    return Piece(first_row, end_row - first_row, first_slot, slots, causal)


def test_one_row_on_one_run_is_one_pass() -> None:
    made = step_of(span(6, 1, (2, 2)))
    assert made.positions_T.tolist() == [6]
    assert made.slots_T.tolist() == [14]
    (group,) = made.groups
    assert group.pieces == (piece(0, 1, 8, 7),)


def test_neighbouring_page_runs_become_one() -> None:
    assert pieces_of(span(9, 1, (2, 1), (3, 1), (4, 2))) == [piece(0, 1, 8, 10)]


def test_one_row_on_scattered_runs_takes_a_pass_each() -> None:
    scattered = span(9, 1, (5, 1), (1, 1), (0, 1))
    assert step_of(scattered).slots_T.tolist() == [1]
    assert pieces_of(scattered) == [piece(0, 1, 20, 4), piece(0, 1, 4, 4), piece(0, 1, 0, 2)]


def test_the_first_chunk_is_one_causal_pass() -> None:
    assert pieces_of(span(0, 7, (3, 2))) == [piece(0, 7, 12, 7, causal=True)]


def test_a_later_chunk_sees_what_came_before_and_itself_causally() -> None:
    chunk = span(5, 3, (3, 2))
    assert step_of(chunk).slots_T.tolist() == [17, 18, 19]
    assert pieces_of(chunk) == [piece(0, 3, 12, 5), piece(0, 3, 17, 3, causal=True)]


def test_a_chunk_over_scattered_runs() -> None:
    chunk = span(2, 8, (7, 1), (0, 1), (4, 1))
    assert step_of(chunk).slots_T.tolist() == [30, 31, 0, 1, 2, 3, 16, 17]
    assert pieces_of(chunk) == [
        piece(0, 8, 28, 2),
        piece(0, 2, 30, 2, causal=True),
        piece(2, 8, 30, 2),
        piece(2, 6, 0, 4, causal=True),
        piece(6, 8, 0, 4),
        piece(6, 8, 16, 2, causal=True),
    ]


def test_long_runs_are_cut_but_for_causal_passes() -> None:
    assert pieces_of(span(7, 3, (1, 3)), most_slots=3) == [
        piece(0, 3, 4, 3),
        piece(0, 3, 7, 3),
        piece(0, 3, 10, 1),
        piece(0, 3, 11, 3, causal=True),
    ]
    assert pieces_of(span(0, 5, (0, 2)), most_slots=2) == [piece(0, 5, 0, 5, causal=True)]


def test_pages_beyond_the_last_row_are_not_read() -> None:
    assert pieces_of(span(0, 1, (3, 2), (9, 1))) == [piece(0, 1, 12, 1)]


def test_spans_follow_each_other_in_the_rows() -> None:
    made = step_of(span(4, 1, (0, 2)), span(0, 3, (5, 1), sequence=1))
    assert made.positions_T.tolist() == [4.0, 0.0, 1.0, 2.0]
    assert made.slots_T.tolist() == [4, 20, 21, 22]
    (group,) = made.groups
    assert group.rows_N is None
    assert group.pieces == (piece(0, 1, 0, 5), piece(1, 4, 20, 3, causal=True))


def test_a_group_tells_which_row_each_row_of_its_pieces_is() -> None:
    (group,) = step_of(span(4, 1, (0, 2)), span(4, 2, (5, 2), sequence=1)).groups
    assert group.rows_N is not None
    assert group.rows_N.tolist() == [0, 1, 2, 1, 2]


def test_many_pieces_come_in_groups_with_all_rows_so_far_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "GROUPED_ROWS", 6)
    groups = step_of(span(18, 2, *((2 * page, 1) for page in range(5)))).groups
    rows = [group.rows_N.tolist() for group in groups if group.rows_N is not None]
    assert [len(group.pieces) for group in groups] == [3, 2, 1]
    assert rows == [[0, 1] * 3, [0, 1] * 3, [0, 1] * 2]
