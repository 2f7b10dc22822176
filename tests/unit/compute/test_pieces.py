"""From spans and pages to slots and attention passes."""

from __future__ import annotations

import pytest
import torch

from layerline.frames import PageRun, Span
from node.model.attention import pieces
from node.model.attention.pieces import ALL, Piece, Reach, Sees, StepPieces

CPU = torch.device("cpu")
ANY = 1 << 40
SIZES = (0, 1, 2, 5, 8, 100)  # of windows and chunks


def step_of(*spans: Span, page_tokens: int = 4, most_slots: int = ANY) -> StepPieces:
    return StepPieces.of(spans, page_tokens, most_slots=most_slots, device=CPU)


def pieces_of(*spans: Span, most_slots: int = ANY, window: int = 0, chunk: int = 0) -> list[Piece]:
    reach = Reach(window, chunk)
    made = StepPieces.of(spans, 4, reaches={reach}, most_slots=most_slots, device=CPU)
    return [piece for group in made.groups[reach] for piece in group.pieces]


def span(start: int, count: int, *pages: tuple[int, int], sequence: int = 0) -> Span:
    runs = tuple(PageRun(first=first, count=run_count) for first, run_count in pages)
    return Span(sequence=sequence, start=start, count=count, pages=runs)


def piece(first_row: int, end_row: int, first_slot: int, slots: int, sees: Sees = "all") -> Piece:
    return Piece(first_row, end_row - first_row, first_slot, slots, sees)


def test_one_row_on_one_run_is_one_pass() -> None:
    made = step_of(span(6, 1, (2, 2)))
    assert made.positions_T.tolist() == [6]
    assert made.slots_T.tolist() == [14]
    (group,) = made.groups[ALL]
    assert group.pieces == (piece(0, 1, 8, 7),)


def test_neighbouring_page_runs_become_one() -> None:
    assert pieces_of(span(9, 1, (2, 1), (3, 1), (4, 2))) == [piece(0, 1, 8, 10)]


def test_one_row_on_scattered_runs_takes_a_pass_each() -> None:
    scattered = span(9, 1, (5, 1), (1, 1), (0, 1))
    assert step_of(scattered).slots_T.tolist() == [1]
    assert pieces_of(scattered) == [piece(0, 1, 20, 4), piece(0, 1, 4, 4), piece(0, 1, 0, 2)]


def test_the_first_chunk_is_one_causal_pass() -> None:
    assert pieces_of(span(0, 7, (3, 2))) == [piece(0, 7, 12, 7, "back")]


def test_a_later_chunk_sees_what_came_before_and_itself_causally() -> None:
    chunk = span(5, 3, (3, 2))
    assert step_of(chunk).slots_T.tolist() == [17, 18, 19]
    assert pieces_of(chunk) == [piece(0, 3, 12, 5), piece(0, 3, 17, 3, "back")]


def test_a_chunk_over_scattered_runs() -> None:
    chunk = span(2, 8, (7, 1), (0, 1), (4, 1))
    assert step_of(chunk).slots_T.tolist() == [30, 31, 0, 1, 2, 3, 16, 17]
    assert pieces_of(chunk) == [
        piece(0, 8, 28, 2),
        piece(0, 2, 30, 2, "back"),
        piece(2, 8, 30, 2),
        piece(2, 6, 0, 4, "back"),
        piece(6, 8, 0, 4),
        piece(6, 8, 16, 2, "back"),
    ]


def test_long_runs_are_cut_but_for_causal_passes() -> None:
    assert pieces_of(span(7, 3, (1, 3)), most_slots=3) == [
        piece(0, 3, 4, 3),
        piece(0, 3, 7, 3),
        piece(0, 3, 10, 1),
        piece(0, 3, 11, 3, "back"),
    ]
    assert pieces_of(span(0, 5, (0, 2)), most_slots=2) == [piece(0, 5, 0, 5, "back")]


def test_pages_beyond_the_last_row_are_not_read() -> None:
    assert pieces_of(span(0, 1, (3, 2), (9, 1))) == [piece(0, 1, 12, 1)]


def test_spans_follow_each_other_in_the_rows() -> None:
    made = step_of(span(4, 1, (0, 2)), span(0, 3, (5, 1), sequence=1))
    assert made.positions_T.tolist() == [4.0, 0.0, 1.0, 2.0]
    assert made.slots_T.tolist() == [4, 20, 21, 22]
    (group,) = made.groups[ALL]
    assert group.rows_N is None
    assert group.pieces == (piece(0, 1, 0, 5), piece(1, 4, 20, 3, "back"))


def test_a_group_tells_which_row_each_row_of_its_pieces_is() -> None:
    (group,) = step_of(span(4, 1, (0, 2)), span(4, 2, (5, 2), sequence=1)).groups[ALL]
    assert group.rows_N is not None
    assert group.rows_N.tolist() == [0, 1, 2, 1, 2]


def test_many_pieces_come_in_groups_with_all_rows_so_far_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "GROUPED_ROWS", 6)
    groups = step_of(span(18, 2, *((2 * page, 1) for page in range(5)))).groups[ALL]
    rows = [group.rows_N.tolist() for group in groups if group.rows_N is not None]
    assert [len(group.pieces) for group in groups] == [3, 2, 1]
    assert rows == [[0, 1] * 3, [0, 1] * 3, [0, 1] * 2]


@pytest.mark.parametrize(("window", "chunk"), [(size, 0) for size in SIZES] + [(0, size) for size in SIZES[1:]])
@pytest.mark.parametrize("most_slots", [3, ANY])
def test_every_row_sees_exactly_the_positions_that_it_may(window: int, chunk: int, most_slots: int) -> None:
    """Page p of the sequence is `pages[p]`; positions are found back by their slots."""
    pages = [9, 4, 5, 6, 1, 12, 3]
    position_of = {page * 4 + offset: place * 4 + offset for place, page in enumerate(pages) for offset in range(4)}
    for start in (0, 1, 7, 16, 19):
        for count in (1, 2, 3, 8):
            seen: dict[int, list[int]] = {row: [] for row in range(count)}
            for piece in pieces_of(
                span(start, count, *((page, 1) for page in pages)), window=window, chunk=chunk, most_slots=most_slots
            ):
                assert piece.sees == "all" or piece.rows == piece.slots
                for index, row in enumerate(piece.row_range):
                    visible = {"all": range(piece.slots), "back": range(index + 1), "ahead": range(index, piece.slots)}
                    seen[row].extend(position_of[piece.first_slot + slot] for slot in visible[piece.sees])
            for row, positions in seen.items():
                own = start + row
                first = max(0, own + 1 - window) if window else own // chunk * chunk if chunk else 0
                assert sorted(positions) == list(range(first, start + row + 1)), (start, count, row)


def test_a_row_with_a_window_is_one_pass_over_what_it_reaches() -> None:
    assert pieces_of(span(9, 1, (2, 3)), window=4) == [piece(0, 1, 14, 4)]


def test_pages_that_are_left_out_move_no_position() -> None:
    rows = Span(sequence=0, start=9, count=1, pages=(PageRun(first=3, count=2),), skipped_pages=1)
    made = StepPieces.of((rows,), 4, reaches={Reach(4)}, most_slots=ANY, device=CPU)
    assert (made.positions_T.tolist(), made.slots_T.tolist()) == ([9], [17])
    assert made.groups[Reach(4)][0].pieces == (piece(0, 1, 14, 4),)


def test_a_chunk_with_a_window_sees_ahead_what_leaves_it() -> None:
    assert pieces_of(span(9, 3, (2, 3)), window=4) == [
        piece(0, 2, 14, 2, "ahead"),
        piece(0, 3, 16, 1),
        piece(0, 3, 17, 3, "back"),
    ]


def test_the_rows_of_each_chunk_see_from_its_first_position() -> None:
    """Positions 8, 9 are the last of one chunk, 10 to 14 all of the next, 15 the first of another."""
    assert pieces_of(span(8, 8, (2, 4)), chunk=5) == [
        piece(0, 2, 13, 3),
        piece(0, 2, 16, 2, "back"),
        piece(2, 7, 18, 5, "back"),
        piece(7, 8, 23, 1),
    ]


def test_each_reach_of_the_layers_has_its_pieces() -> None:
    made = StepPieces.of((span(9, 1, (2, 3)),), 4, reaches={ALL, Reach(4), Reach(0, 4)}, most_slots=ANY, device=CPU)
    seen = {reach: groups[0].pieces for reach, groups in made.groups.items()}
    assert seen == {
        ALL: (piece(0, 1, 8, 10),),
        Reach(4): (piece(0, 1, 14, 4),),
        Reach(0, 4): (piece(0, 1, 16, 2),),
    }
