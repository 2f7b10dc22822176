"""Rank 0 hands each step on before it computes it, the others compute what comes, and a failure is told once."""

from __future__ import annotations

import itertools
import queue
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import pytest

from layerline.errors import LayerlineError, ProtocolError, StageFailedError
from layerline.frames import Frame, PageRun, Span, TensorBytes
from layerline.models.expert_placement import ExpertPlacement
from layerline.step_result import StepResult
from node import pipe
from node.step.computation import StageExperts
from node.worker.expert_moves import ExpertMoves
from node.worker.follower import follow
from node.worker.rank_line import RankLine, pack_move, pack_step
from node.worker.rank_steps import RankSteps
from tests.fakes.echo_stage import EchoStage
from tests.fakes.stage_experts import FakeExperts


class EndedError(Exception):
    """Where a process would have ended."""


class FakeEnd:
    """Keeps what a rank said at its end."""

    def __init__(self) -> None:
        self.told: list[LayerlineError] = []

    def failed(self, error: LayerlineError) -> NoReturn:
        self.told.append(error)
        raise EndedError

    def others_gone(self) -> NoReturn:
        raise EndedError


class Panic(BaseException):
    """As a Rust library's is, which is no Exception."""


class FakePart:
    """The part of a rank that follows; fails at step `fails_at` with `failure`."""

    def __init__(self, fails_at: int = 0, failure: BaseException | None = None) -> None:
        self.steps: list[int] = []
        self._fails_at = fails_at
        self._failure = failure

    def follow(self, frame: Frame) -> None:
        self.steps.append(frame.step)
        if self._failure and frame.step == self._fails_at:
            raise self._failure


def frame(step: int) -> Frame:
    span = Span(sequence=1, start=0, count=1, pages=(PageRun(first=0, count=1),))
    return Frame(epoch=1, step=step, spans=(span,), tensor=TensorBytes(dtype="int32", shape=(1,), data=bytes(4)))


def refuse_step_5(frame: Frame) -> None:
    if frame.step == 5:
        raise ProtocolError("Step 5 is bad.")


@contextmanager
def lines(count: int) -> Iterator[tuple[list[RankLine], list[socket.socket]]]:
    """Rank 0's lines to that many others, and the others' ends."""
    with ExitStack() as held:
        pairs = [socket.socketpair() for _ in range(count)]
        for near, far in pairs:
            held.enter_context(near)
            held.enter_context(far)
        names = [f"Rank {number + 1} (cpu:{number + 1})" for number in range(count)]
        near_ends = [RankLine(near, name, deadline_s=0.05) for (near, _), name in zip(pairs, names, strict=True)]
        yield near_ends, [far for _, far in pairs]


def steps(stage: EchoStage, others: list[RankLine], end: FakeEnd) -> RankSteps:
    return RankSteps(stage, refuse_step_5, others, end)


def test_every_other_rank_gets_each_step_that_rank_0_computes() -> None:
    with lines(2) as (near, far):
        compute = steps(EchoStage(last=True), near, FakeEnd())
        for step in (1, 2):
            output = compute.run(frame(step))
            assert isinstance(output, StepResult)
            assert output.step == step
        for end in far:
            receiver = RankLine(end, "Rank 0 (cpu:0)")
            assert [receiver.receive() for _ in range(2)] == [frame(1), frame(2)]


def test_a_step_that_is_refused_reaches_nobody_and_ends_nothing() -> None:
    end, stage = FakeEnd(), EchoStage(last=True)
    with lines(1) as (near, far):
        compute = steps(stage, near, end)
        with pytest.raises(ProtocolError, match="Step 5 is bad"):
            compute.run(frame(5))
        compute.run(frame(6))
        assert RankLine(far[0], "Rank 0 (cpu:0)").receive() == frame(6)
    assert (end.told, stage.steps) == ([], [6])


def test_a_failure_of_rank_0_in_mid_step_is_told_and_ends_it() -> None:
    end = FakeEnd()
    with lines(1) as (near, _), pytest.raises(EndedError):
        steps(EchoStage(last=True, fails_at=2), near, end).run(frame(2))
    (error,) = end.told
    assert isinstance(error, StageFailedError)
    assert error.message == "A step of 1 rows failed (out of memory, says the library)."


def test_an_other_that_takes_no_step_is_named() -> None:
    end = FakeEnd()
    with lines(1) as (near, _):
        compute = steps(EchoStage(last=True), near, end)
        with pytest.raises(EndedError):
            run_for_ever(compute)
    assert "Rank 1 (cpu:1) of the stage took no step for 0.05 s." in str(end.told[0])


def run_for_ever(compute: RankSteps) -> None:
    for step in itertools.count(10):
        compute.run(frame(step))


def test_an_other_that_is_gone_is_left_to_the_daemon() -> None:
    end, stage = FakeEnd(), EchoStage(last=True)
    with lines(1) as (near, far):
        far[0].close()
        with pytest.raises(EndedError):
            steps(stage, near, end).run(frame(1))
    assert (end.told, stage.steps) == ([], [])


def followed(part: FakePart, *sent: bytes, experts: StageExperts | None = None) -> list[LayerlineError]:
    """What a rank says that follows until `sent` ends."""
    end = FakeEnd()
    near, far = socket.socketpair()
    with far:
        with near:
            near.sendall(b"".join(sent))
        with pytest.raises(EndedError):
            follow(RankLine(far, "Rank 0 (cpu:0)"), part, ExpertMoves(experts or FakeExperts(), "kitchen"), end)
    return end.told


def test_a_rank_that_follows_computes_until_rank_0_is_gone_and_says_nothing() -> None:
    part = FakePart()
    assert followed(part, pack_step(frame(1)), pack_step(frame(2))) == []
    assert part.steps == [1, 2]


@pytest.mark.parametrize(
    "failure", [RuntimeError("boom"), ProtocolError("Not for me."), MemoryError(), Panic("unwrap")]
)
def test_a_rank_that_fails_while_following_says_why_once(failure: BaseException) -> None:
    part = FakePart(2, failure)
    (error,) = followed(part, pack_step(frame(1)), pack_step(frame(2)), pack_step(frame(3)))
    assert part.steps == [1, 2]
    assert str(failure) in str(error)


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(3)])
def test_what_ends_the_process_does_so(ending: BaseException) -> None:
    end = FakeEnd()
    near, far = socket.socketpair()
    with far:
        with near:
            near.sendall(pack_step(frame(1)))
        with pytest.raises(type(ending)):
            follow(RankLine(far, "Rank 0 (cpu:0)"), FakePart(1, ending), ExpertMoves(FakeExperts(), "kitchen"), end)
    assert end.told == []


def test_a_rank_that_is_sent_junk_says_so() -> None:
    (error,) = followed(FakePart(), b"\x00\x00\x00\x01\xc1")
    assert isinstance(error, ProtocolError)


def test_a_move_is_taken_by_all_ranks_between_the_same_steps() -> None:
    experts = FakeExperts()
    moves = ExpertMoves(experts, "kitchen")
    answers: queue.Queue[pipe.FromWorker] = queue.Queue()
    moves.begin(pipe.PrepareExperts(move=7, layer=1, ranks=((0,), (1,))), answers.put)
    assert answers.get(timeout=20.0) == pipe.Prepared(move=7)
    with lines(1) as (near, far):
        compute = steps(EchoStage(last=True), near, FakeEnd())
        compute.run(frame(1))
        compute.take_experts(7, moves)
        compute.run(frame(2))
        receiver = RankLine(far[0], "Rank 0 (cpu:0)")
        assert [receiver.receive() for _ in range(3)] == [frame(1), 7, frame(2)]
    assert experts.taken == [(1, ExpertPlacement(((0,), (1,))))]


def test_a_rank_that_follows_takes_what_it_has_not_prepared_for_a_failure() -> None:
    part = FakePart()
    (error,) = followed(part, pack_step(frame(1)), pack_move(3), pack_step(frame(2)))
    assert part.steps == [1]
    assert "Experts were to move (move 3), which this rank has not prepared." in str(error)
