"""A step comes out of a line as it went in, and whatever else comes is refused, named or taken for the other's end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.errors import LayerlineError, ProtocolError, StageFailedError
from layerline.frames import MAX_TENSOR_BYTES, Frame, PageRun, Sampling, Span, TensorBytes
from layerline.rpc.channels import MAX_MESSAGE_BYTES
from layerline.rpc.v1 import ring_pb2
from node.worker.rank_line import LENGTH_BYTES, LineEndedError, RankLine, pack_step, unpack_step

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def line(end: socket.socket, deadline_s: float = 20.0) -> RankLine:
    return RankLine(end, "Rank 1 (cpu:1)", deadline_s=deadline_s)


def frame(rows: int = 3, *spans: Span) -> Frame:
    whole = Span(sequence=1, start=4, count=rows, pages=(PageRun(first=2, count=9), PageRun(first=0, count=1)))
    tensor = TensorBytes(dtype="int32", shape=(rows,), data=os.urandom(4 * rows))
    return Frame(epoch=7, step=9, spans=spans or (whole,), tensor=tensor)


def every_field() -> Span:
    """A span of which no field has its default."""
    sampling = Sampling(
        temperature=0.7,
        top_k=5,
        top_p=0.5,
        min_p=0.1,
        repetition_penalty=1.5,
        seed=(1 << 64) - 1,
        presence_penalty=-1.5,
        frequency_penalty=0.1,
        prompt_ids=(3, 1, 100_000),
        answer_ids=(1, 7),
        answer_counts=(300, 1),
        return_logits=True,
    )
    return Span(
        sequence=1 << 40,
        start=160,
        count=1,
        pages=(PageRun(first=3, count=4),),
        skipped_pages=8,
        draws=1,
        sampling=sampling,
    )


@pytest.mark.parametrize("sent", [frame(), frame(1, every_field())])
def test_a_step_comes_as_it_went(ends: Ends, sent: Frame) -> None:
    line(ends[0]).send(pack_step(sent))
    assert line(ends[1]).receive() == sent


def test_large_steps_come_whole_and_in_order(ends: Ends) -> None:
    rows = MAX_TENSOR_BYTES // (4 * 256)
    tensor = TensorBytes(dtype="float32", shape=(rows, 256), data=os.urandom(rows * 1024))
    large = Frame(epoch=1, step=1, spans=frame(rows).spans, tensor=tensor)

    small = frame()

    def send_both() -> None:
        for sent in (large, small):
            line(ends[0]).send(pack_step(sent))

    sending = threading.Thread(target=send_both)
    sending.start()
    receiver = line(ends[1])
    assert receiver.receive() == large
    assert receiver.receive() == small
    sending.join()


def test_a_step_over_the_bound_is_not_sent() -> None:
    penalised = tuple(range(1 << 24, (1 << 24) + MAX_MESSAGE_BYTES // 4 + 1))
    span = Span(
        sequence=1,
        start=0,
        count=1,
        pages=(PageRun(first=0, count=1),),
        draws=1,
        sampling=Sampling(prompt_ids=penalised),
    )
    with pytest.raises(ProtocolError, match="Step 9 takes"):
        pack_step(frame(1, span))


def test_a_step_over_the_bound_is_not_read(ends: Ends) -> None:
    ends[0].sendall((MAX_MESSAGE_BYTES + 1).to_bytes(LENGTH_BYTES, "big"))
    with pytest.raises(ProtocolError, match="announced a step"):
        line(ends[1]).receive()


def test_an_other_that_takes_nothing_is_named(ends: Ends) -> None:
    with pytest.raises(StageFailedError, match=r"Rank 1 \(cpu:1\) of the stage took no step for 0.05 s"):
        line(ends[0], deadline_s=0.05).send(bytes(MAX_MESSAGE_BYTES))


def test_an_other_that_stops_in_the_middle_is_named(ends: Ends) -> None:
    ends[0].sendall(pack_step(frame())[:-1])
    with pytest.raises(StageFailedError, match=r"stopped in the middle of a step for 0.05 s"):
        line(ends[1], deadline_s=0.05).receive()


def test_an_other_that_is_gone_is_no_failure_of_this_rank(ends: Ends) -> None:
    ends[0].sendall(pack_step(frame())[:-1])
    ends[0].close()
    with pytest.raises(LineEndedError):
        line(ends[1]).receive()
    with pytest.raises(LineEndedError):
        line(ends[1]).receive()
    with pytest.raises(LineEndedError):
        line(ends[1]).send(pack_step(frame()))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda frame: frame.ClearField("spans"),
        lambda frame: frame.spans[0].ClearField("pages"),
        lambda frame: frame.spans[0].sampling.ClearField("options"),
        lambda frame: frame.spans[0].sampling.answer_ids.append(5),
        lambda frame: setattr(frame.tensor, "dtype", "int64"),
        lambda frame: frame.tensor.shape.append(2),
        lambda frame: setattr(frame.tensor, "data", b"123"),
    ],
)
def test_a_spoilt_step_is_refused(spoil: Callable[[ring_pb2.Frame], object]) -> None:
    message = ring_pb2.Frame.FromString(pack_step(frame(1, every_field()))[LENGTH_BYTES:])
    spoil(message)
    with pytest.raises(ProtocolError, match="not valid"):
        unpack_step(message.SerializeToString())


@given(st.binary(max_size=64))
def test_junk_is_refused(body: bytes) -> None:
    with pytest.raises(LayerlineError):
        unpack_step(body)
