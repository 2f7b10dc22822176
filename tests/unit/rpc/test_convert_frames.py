"""Frames and results, there and back; what they refuse is a ProtocolError."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from layerline.errors import ProtocolError
from layerline.frames import MAX_SLOTS, Frame, Hello, PageRun, Sampling, Span, StageTiming, StateRun, TensorBytes
from layerline.plan import DTYPE_BYTES
from layerline.rpc.convert_frames import (
    frame_from_message,
    frame_to_message,
    hello_from_message,
    hello_to_message,
    result_from_message,
    result_to_message,
)
from layerline.rpc.v1 import common_pb2, ring_pb2
from layerline.step_result import SampledToken, StepResult, TokenScores
from layerline.token_mask import TokenMask

NUMBERS = st.integers(0, (1 << 64) - 1)
SMALL = st.integers(0, (1 << 32) - 1)
FLOATS = st.floats(0, 1, width=32)
TIMINGS = st.lists(
    st.builds(StageTiming, stage_index=SMALL, compute_us=SMALL, waited_us=SMALL, sending_us=SMALL), max_size=3
).map(tuple)
SAMPLINGS = st.builds(
    Sampling,
    temperature=FLOATS,
    top_k=st.integers(0, 1 << 20),
    top_p=st.floats(0.5, 1),
    min_p=FLOATS,
    repetition_penalty=st.just(1.0) | st.floats(0.5, 2),
    presence_penalty=st.just(0.0) | st.floats(-2, 2),
    frequency_penalty=st.just(0.0) | st.floats(-2, 2),
    seed=NUMBERS,
    prompt_ids=st.lists(SMALL, max_size=4).map(tuple),
    answer_ids=st.just((5, 7)),
    answer_counts=st.tuples(st.integers(1, 1 << 24), st.just(1)),
    return_logits=st.booleans(),
    mask=st.none() | st.builds(TokenMask.allowing, st.sets(st.integers(0, 1 << 18), min_size=1)),
)


def state_runs(slots: list[int], start: int, count: int) -> tuple[StateRun, ...]:
    """Runs of all rows, the first ones of one row, that go from slot to slot."""
    if not slots:
        return ()
    targets = slots[:count]
    counts = [1] * (len(targets) - 1) + [count - len(targets) + 1]
    sources: list[int | None] = [slots[-1] if start else None, *targets]
    runs = zip(counts, sources, targets, strict=False)
    return tuple(StateRun(count=rows, source=source, target=target) for rows, source, target in runs)


def drawing_span(
    count: int, draws: int, sampling: Sampling, next_ids: tuple[int, ...], slots: list[int], **fields: Any
) -> Span:
    """A span that draws after some of its rows, or is scored there, or neither."""
    fields["states"] = state_runs(slots, fields["start"], count)
    draws = min(draws, count, 1 if sampling.repeats or sampling.counts or sampling.mask else count)
    known = () if draws else next_ids[:count]
    return Span(count=count, draws=draws, sampling=sampling if draws else None, next_ids=known, **fields)


SPANS = st.builds(
    drawing_span,
    sequence=NUMBERS,
    start=st.integers(0, 1 << 20),
    count=st.integers(1, 4),
    pages=st.lists(
        st.builds(PageRun, first=st.integers(0, 1 << 23), count=st.integers(1, 1 << 23)), min_size=1, max_size=3
    ).map(tuple),
    draws=st.integers(0, 4),
    sampling=SAMPLINGS,
    next_ids=st.lists(SMALL, max_size=4).map(tuple),
    slots=st.lists(st.integers(0, MAX_SLOTS - 1), max_size=3),
)
SCORES = st.lists(
    st.builds(
        TokenScores,
        sequence=NUMBERS,
        position=SMALL,
        log_probabilities=st.lists(st.floats(-1000, 0, width=32), max_size=4).map(tuple),
    ),
    max_size=3,
).map(tuple)


def tensor(dtype: str, *shape: int) -> TensorBytes:
    return TensorBytes(dtype=dtype, shape=shape, data=bytes(math.prod(shape) * DTYPE_BYTES[dtype]))


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    spans = tuple(draw(st.lists(SPANS, min_size=1, max_size=3)))
    rows = sum(span.count for span in spans)
    shape = draw(st.sampled_from([(rows,), (rows, 8)]))
    dtype = draw(st.sampled_from(list(DTYPE_BYTES)))
    return Frame(
        epoch=draw(NUMBERS),
        step=draw(NUMBERS),
        spans=spans,
        tensor=tensor(dtype, *shape),
        timings=draw(TIMINGS),
        ids=draw(st.sampled_from([None, tensor("int32", rows)])),
    )


@given(frames())
def test_a_frame_comes_back_as_it_was(told: Frame) -> None:
    message = ring_pb2.ForwardMessage.FromString(frame_to_message(told).SerializeToString())
    assert frame_from_message(message.frame) == told


@given(NUMBERS, NUMBERS, st.lists(st.tuples(NUMBERS, SMALL, st.booleans()), max_size=3), TIMINGS, SCORES)
def test_a_result_comes_back_as_it_was(
    epoch: int,
    step: int,
    sampled: list[tuple[int, int, bool]],
    timings: tuple[StageTiming, ...],
    scores: tuple[TokenScores, ...],
) -> None:
    tokens = tuple(
        SampledToken(
            sequence=sequence, position=token_id, token_id=token_id, logits=tensor("float32", 5) if logits else None
        )
        for sequence, token_id, logits in sampled
    )
    told = StepResult(epoch=epoch, step=step, sampled=tokens, timings=timings, failed=(step, 7), scores=scores)
    assert result_from_message(ring_pb2.StepResult.FromString(result_to_message(told).SerializeToString())) == told


def test_a_hello_comes_back_as_it_was() -> None:
    told = Hello(wire_version=1, epoch=2, plan_key=b"k" * 16, model_digest="d", stage_index=3, sender="a")
    assert hello_from_message(hello_to_message(told)) == told
    with pytest.raises(ProtocolError, match="sender"):
        hello_from_message(ring_pb2.Hello(sender="a\nb"))


GOOD: dict[str, Any] = {
    "epoch": 1,
    "step": 1,
    "spans": [{"sequence": 1, "start": 0, "count": 2, "pages": [{"first": 0, "count": 1}]}],
    "tensor": {"dtype": "int32", "shape": [2], "data": bytes(8)},
}
GOOD_SPAN: dict[str, Any] = GOOD["spans"][0]


SURE: dict[str, Any] = {"options": {"top_p": 1, "repetition_penalty": 1}}


def options(**change: Any) -> dict[str, Any]:
    return span(draws=1, sampling={"options": {**SURE["options"], **change}})


def span(**change: Any) -> dict[str, Any]:
    return {"spans": [{**GOOD_SPAN, **change}]}


def test_the_frame_that_the_bad_ones_are_made_of_is_good() -> None:
    assert frame_from_message(ring_pb2.Frame(**GOOD)).rows == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"spans": []}, "needs spans"),
        (span(pages=[]), "needs pages"),
        (span(count=0), "span out of range"),
        (span(count=3), "3 rows"),
        (span(start=(1 << 32) - 1), "span out of range"),
        (span(pages=[{"first": (1 << 32) - 1, "count": 1}]), "page run"),
        (span(pages=[{"first": 1, "count": 0}]), "page run"),
        (options(temperature=math.nan), "temperature"),
        (options(top_p=0), "top_p"),
        (options(repetition_penalty=math.inf), "repetition_penalty"),
        (span(draws=1), "says how"),
        (span(sampling=SURE), "says how"),
        (span(draws=3, sampling=SURE), "some or all of its rows"),
        (span(draws=2, sampling={"options": {"top_p": 1, "repetition_penalty": 2}}), "draws once"),
        (span(draws=1, sampling=SURE, next_ids=[5]), "draws, is scored or is summed"),
        (span(next_ids=[5, 6, 7]), "scored after none, some or all"),
        (span(draws=1, sampling={**SURE, "answer_ids": [5]}), "needs its count"),
        (span(draws=1, sampling={**SURE, "answer_ids": [5], "answer_counts": [0]}), "count is out of range"),
        (span(states=[{"count": 1, "target": 0}]), "not of all rows"),
        (span(states=[{"count": 2, "source": 0, "target": 0}]), "only a sequence that begins"),
        (span(start=1, states=[{"count": 2, "target": 0}]), "only a sequence that begins"),
        (span(states=[{"count": 1, "target": 0}, {"count": 1, "source": 1, "target": 0}]), "does not go on"),
        (span(states=[{"count": 0, "target": 0}, {"count": 2, "source": 0, "target": 0}]), "state run out of range"),
        (span(states=[{"count": 2, "target": MAX_SLOTS}]), "slot out of range"),
        ({"tensor": {"dtype": "int32", "shape": [2], "data": bytes(7)}}, "7 bytes"),
        ({"tensor": {"dtype": "int32", "shape": [2, 0], "data": b""}}, "shape"),
        ({"tensor": {"dtype": "int32", "shape": [1] * 5, "data": bytes(4)}}, "shape"),
        ({"tensor": {"dtype": "int32", "shape": [1 << 31, 1 << 31], "data": b""}}, "dtype and shape say"),
        ({"tensor": {"dtype": "float64", "shape": [1], "data": bytes(8)}}, "float64"),
        ({"tensor": {}}, "dtype"),
    ],
)
def test_a_frame_that_cannot_be_is_a_protocol_error(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        frame_from_message(ring_pb2.Frame(**{**GOOD, **change}))


@given(st.binary(max_size=80))
def test_junk_is_a_frame_or_a_protocol_error(junk: bytes) -> None:
    for read in (
        lambda: frame_from_message(ring_pb2.Frame.FromString(junk)),
        lambda: result_from_message(ring_pb2.StepResult.FromString(junk)),
    ):
        with contextlib.suppress(DecodeError, ProtocolError):
            read()


def test_logits_of_a_wrong_size_are_a_protocol_error() -> None:
    logits = common_pb2.Tensor(dtype="float32", shape=[2], data=b"x")
    sampled = ring_pb2.SampledToken(sequence=1, token_id=1, logits=logits)
    with pytest.raises(ProtocolError, match="step result"):
        result_from_message(ring_pb2.StepResult(epoch=1, step=1, sampled=[sampled]))


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 0.5])
def test_what_is_no_log_probability_is_a_protocol_error(score: float) -> None:
    scores = ring_pb2.TokenScores(sequence=1, position=1, log_probabilities=[-1.0, score])
    with pytest.raises(ProtocolError, match="step result is not valid: a log-probability"):
        result_from_message(ring_pb2.StepResult(epoch=1, step=1, scores=[scores]))
