"""Frames that are not for a stage are refused before anything is computed, and the message says why."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from layerline.errors import ProtocolError
from layerline.frames import Frame, PageRun, Sampling, StateRun, TensorBytes
from layerline.mask_forms import smallest_mask
from layerline.models.recurrent import ShortConvSpec
from layerline.plan import StageSpec
from layerline.token_mask import TokenMask
from node.step.admission import check_frame
from tests.fakes.specs import decoder_spec, hybrid, windowed
from tests.fakes.tiny_models import Rows, frame_of, pages_of

MODEL = decoder_spec(hidden=8, intermediate=16, heads=2, kv_heads=1, head_dim=4, context_tokens=64)
FIRST = StageSpec(
    model="m",
    digest="d",
    first_layer=0,
    last_layer=1,
    dtype="float32",
    devices=("cpu",),
    pages=10,
    page_tokens=4,
    max_rows=6,
)
LAST = dataclasses.replace(FIRST, first_layer=2, last_layer=3)
TWO_PAGES = pages_of([0, 1])
RUN = (PageRun(first=3, count=3),)
SHARED = "writes page {page} for sequence {writer} and names it for sequence {other}"


def rows(
    count: int = 1, start: int = 0, *, pages: tuple[PageRun, ...] = TWO_PAGES, skipped_pages: int = 0, sequence: int = 1
) -> Rows:
    return Rows(token_ids=[7] * count, start=start, pages=pages, skipped_pages=skipped_pages, sequence=sequence)


def activations(frame: Frame, width: int = 8, dtype: str = "float32") -> Frame:
    data = bytes(frame.rows * width * {"float32": 4, "bfloat16": 2}[dtype])
    tensor = TensorBytes(dtype=dtype, shape=(frame.rows, width), data=data)
    return dataclasses.replace(frame, tensor=tensor)


def test_good_frames_pass() -> None:
    batch = frame_of(rows(4), rows(2, 6, pages=pages_of([9, 2]), sequence=2))
    check_frame(batch, FIRST, MODEL)
    check_frame(activations(batch), LAST, MODEL)
    check_frame(frame_of(rows(1, 7)), FIRST, MODEL)


def test_where_every_layer_has_a_window_pages_behind_it_may_be_left_out() -> None:
    model = windowed(MODEL, 5)
    check_frame(frame_of(rows(1, 12, skipped_pages=2)), FIRST, model)
    check_frame(frame_of(rows(4, 12, skipped_pages=2)), FIRST, model)
    check_frame(frame_of(rows(1, 8, skipped_pages=1), rows(1, pages=pages_of([2]), sequence=2)), FIRST, model)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (rows(1, 11, skipped_pages=2), "leaves out 8 positions of sequence 1, of which 7 are not read any more"),
        (rows(1, 3, skipped_pages=1), "leaves out 4 positions of sequence 1, of which 0 are not read"),
        (rows(1, 16, skipped_pages=2), "has pages for 16 positions of sequence 1, which now has 17"),
        (rows(1, 12, skipped_pages=2, pages=pages_of([3, 3])), "page 3 twice"),
    ],
)
def test_pages_that_are_read_may_not_be_left_out(bad: Rows, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        check_frame(frame_of(bad), FIRST, windowed(MODEL, 5))


def test_no_page_may_be_left_out_where_a_layer_sees_all() -> None:
    for model in (MODEL, windowed(MODEL, 5, 1)):
        with pytest.raises(ProtocolError, match="leaves out 8 positions of sequence 1, of which 0 are not read"):
            check_frame(frame_of(rows(1, 12, skipped_pages=2)), FIRST, model)


def test_a_page_written_behind_left_out_ones_is_named_by_nobody_else() -> None:
    model = windowed(MODEL, 5)
    writer, reader = rows(1, 12, skipped_pages=2), rows(1, pages=pages_of([1]), sequence=2)
    with pytest.raises(ProtocolError, match=SHARED.format(page=1, writer=1, other=2)):
        check_frame(frame_of(writer, reader), FIRST, model)


def test_pages_that_are_only_read_may_be_shared() -> None:
    one, other = pages_of([5, 6, 1]), (PageRun(first=5, count=4),)
    check_frame(frame_of(rows(1, 8, pages=one), rows(4, 8, pages=other, sequence=2)), FIRST, MODEL)
    spare = (PageRun(first=0, count=2), PageRun(first=8, count=1))
    check_frame(frame_of(rows(1, 4, pages=spare), rows(1, 8, pages=other, sequence=2)), FIRST, MODEL)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (frame_of(rows(7)), "has 7 rows, more than 6"),
        (frame_of(rows(1, 8)), "pages for 8 positions of sequence 1, which now has 9"),
        (frame_of(rows(pages=pages_of([0, 10]))), "names page 10 for sequence 1, but the pool ends at 9"),
        (frame_of(rows(pages=(PageRun(first=3, count=8),))), "names page 10"),
        (frame_of(rows(pages=pages_of([4, 4]))), "names page 4 twice for sequence 1"),
        (frame_of(rows(1, 4), rows(pages=pages_of([1]), sequence=2)), SHARED.format(page=1, writer=1, other=2)),
        (frame_of(rows(pages=pages_of([1])), rows(1, 4, sequence=2)), SHARED.format(page=1, writer=1, other=2)),
        (frame_of(rows(1, 4, pages=RUN), rows(1, 8, pages=RUN, sequence=2)), SHARED.format(page=4, writer=1, other=2)),
        (frame_of(rows(5, pages=RUN), rows(1, pages=pages_of([4]), sequence=2)), "page 4 for sequence 1 and names"),
        (frame_of(rows(), rows(pages=pages_of([5]))), "two spans of one sequence"),
        (frame_of(Rows(token_ids=[100])), "token ids outside 0 to 99"),
        (frame_of(Rows(token_ids=[3, -1])), "token ids outside 0 to 99"),
        (activations(frame_of(rows())), "brings float32 to a stage that takes int32"),
    ],
)
def test_bad_frames_into_the_first_stage(bad: Frame, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        check_frame(bad, FIRST, MODEL)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (frame_of(rows()), "brings int32 to a stage that takes float32"),
        (activations(frame_of(rows()), dtype="bfloat16"), "brings bfloat16 to a stage that takes float32"),
        (activations(frame_of(rows()), width=9), r"brings shape \(1, 9\) to a stage that takes \(1, 8\)"),
    ],
)
def test_bad_activations(bad: Frame, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        check_frame(bad, LAST, MODEL)


def test_a_flat_tensor_of_another_shape_is_refused() -> None:
    tensor = TensorBytes(dtype="int32", shape=(2, 1), data=np.zeros(2, np.int32).tobytes())
    with pytest.raises(ProtocolError, match=r"brings shape \(2, 1\)"):
        check_frame(dataclasses.replace(frame_of(rows(2)), tensor=tensor), FIRST, MODEL)


def test_ids_to_be_scored_are_checked_where_they_are_used() -> None:
    frame = frame_of(Rows(token_ids=[1, 2], pages=TWO_PAGES, next_ids=[2, 100]))
    check_frame(frame, FIRST, MODEL)
    with pytest.raises(ProtocolError, match="scores token ids outside 0 to 99 for sequence 1"):
        check_frame(activations(frame), LAST, MODEL)
    check_frame(activations(frame_of(Rows(token_ids=[1, 2], pages=TWO_PAGES, next_ids=[2, 99]))), LAST, MODEL)


def test_masked_ids_are_checked_where_they_are_used() -> None:
    for good in (TokenMask.allowing([99]), smallest_mask(b"\xff" * 13, 100)):
        check_frame(activations(masked_frame(good)), LAST, MODEL)
    for bad in (TokenMask.forbidding([3, 100]), smallest_mask(b"\xff" * 13, 101)):
        check_frame(masked_frame(bad), FIRST, MODEL)
        with pytest.raises(ProtocolError, match="masks token ids outside 0 to 99 for sequence 1"):
            check_frame(activations(masked_frame(bad)), LAST, MODEL)


def masked_frame(mask: TokenMask) -> Frame:
    return frame_of(Rows(token_ids=[1], pages=TWO_PAGES, sampling=Sampling(mask=mask)))


@pytest.mark.parametrize("token_id", [-1, 100])
def test_penalised_ids_are_checked_where_they_are_used(token_id: int) -> None:
    sampling = Sampling(repetition_penalty=1.1, prompt_ids=(5, token_id))
    frame = frame_of(Rows(token_ids=[1], pages=TWO_PAGES, sampling=sampling))
    check_frame(frame, FIRST, MODEL)
    with pytest.raises(ProtocolError, match="penalises token ids outside 0 to 99 for sequence 1"):
        check_frame(activations(frame), LAST, MODEL)


HYBRID = hybrid(MODEL, ShortConvSpec(channels=8, taps=3))  # forty positions of pages, and four slots beside them


def with_states(*states: tuple[tuple[int | None, int], ...]) -> Frame:
    """Spans that each have two rows behind six others, or at the beginning, and of each row its source and target."""
    frame = frame_of(
        *(
            rows(2, 0 if runs and runs[0][0] is None else 6, pages=pages_of([2 * n, 2 * n + 1]), sequence=n)
            for n, runs in enumerate(states)
        )
    )
    spans = [
        dataclasses.replace(
            span, states=tuple(StateRun(count=2 // len(runs), source=source, target=target) for source, target in runs)
        )
        for span, runs in zip(frame.spans, states, strict=True)
    ]
    return dataclasses.replace(frame, spans=tuple(spans))


@pytest.mark.parametrize(
    "states",
    [
        (((None, 0),), ((1, 1),)),
        (((0, 0), (0, 3)),),
        (((0, 1),), ((0, 2),)),
    ],
)
def test_rows_of_a_recurrent_model_have_slots(states: tuple[tuple[tuple[int | None, int], ...], ...]) -> None:
    check_frame(with_states(*states), FIRST, HYBRID)
    check_frame(activations(with_states(*states)), LAST, HYBRID)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ((((0, 4),),), "names slot 4 for sequence 0, but the slots end at 3"),
        ((((4, 0),),), "names slot 4 for sequence 0, but the slots end at 3"),
        ((((0, 1),), ()), "has no states for sequence 1 of a model with recurrent layers"),
        ((((None, 1),), ((2, 1),)), "writes slot 1 for sequences 0 and 1"),
        ((((0, 0), (0, 1)), ((2, 0),)), "writes slot 0 for sequences 0 and 1"),
        ((((0, 1),), ((1, 2),)), "writes slot 1 for sequence 0 and goes on from it for sequence 1"),
        ((((1, 2),), ((0, 1),)), "writes slot 1 for sequence 1 and goes on from it for sequence 0"),
    ],
)
def test_slots_of_no_stage_or_of_two_sequences(
    states: tuple[tuple[tuple[int | None, int], ...], ...], message: str
) -> None:
    with pytest.raises(ProtocolError, match=message):
        check_frame(with_states(*states), FIRST, HYBRID)


def test_rows_of_a_model_without_recurrent_layers_have_no_slots() -> None:
    with pytest.raises(ProtocolError, match="has states for sequence 0 of a model without recurrent layers"):
        check_frame(with_states(((0, 0),)), FIRST, MODEL)
