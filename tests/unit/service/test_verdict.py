"""Which word of several is told, and after how long. In virtual time."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.verdict import Patience, Verdict
from layerline.errors import (
    DeadlineError,
    LayerlineError,
    ModelCorruptError,
    NodeDrainingError,
    NodeHeldError,
    NodeLostError,
    PlanDoesNotFitError,
    ProtocolError,
    StageFailedError,
)
from tests.fakes.virtual_time import run_in_virtual_time

PATIENCE = Patience(telling_s=0.5, naming_s=4.0)
ENDED = NodeLostError("A neighbour on the ring ended its stream.")
LATE = DeadlineError("A step did not come back.")
B_GONE = NodeLostError("The connection to b is gone.", node="b")
A_GONE = NodeLostError("The connection to a is gone.", node="a")
ODD = ProtocolError("What is this?")
KILLED = StageFailedError("The worker of b was killed.", node="b")
OWN = [
    KILLED,
    NodeDrainingError("b ends."),
    NodeHeldError("b is held."),
    ModelCorruptError("Bad."),
    PlanDoesNotFitError("Too large."),
]


async def reached(*words: tuple[float, LayerlineError]) -> tuple[LayerlineError, float]:
    """The verdict when these words are said at these seconds, and when it is reached."""
    verdict, loop = Verdict(PATIENCE), asyncio.get_running_loop()
    began_s = loop.time()
    for after_s, word in words:
        loop.call_at(began_s + after_s, verdict.hear, word)
    return await verdict.reached(), loop.time() - began_s


@pytest.mark.parametrize("own", OWN)
def test_somebodys_own_word_is_the_verdict_at_once(own: LayerlineError) -> None:
    assert run_in_virtual_time(reached((1.0, own))) == (own, 1.0)


@pytest.mark.parametrize(
    ("words", "verdict", "at_s"),
    [
        ([(0.0, B_GONE)], B_GONE, 0.5),
        ([(0.0, ODD)], ODD, 0.5),
        ([(0.0, ENDED)], ENDED, 4.0),
        ([(0.0, LATE)], LATE, 4.0),
        ([(0.0, ENDED), (1.0, B_GONE)], B_GONE, 1.5),
        ([(0.0, ENDED), (3.8, B_GONE)], B_GONE, 4.0),
        ([(0.0, B_GONE), (0.3, KILLED)], KILLED, 0.3),
        ([(0.0, B_GONE), (0.6, KILLED)], B_GONE, 0.5),
        ([(0.0, ODD), (0.1, ENDED), (0.2, B_GONE)], B_GONE, 0.5),
        ([(0.0, B_GONE), (0.1, A_GONE)], B_GONE, 0.5),
        ([(0.0, ENDED), (0.1, ODD), (0.2, B_GONE), (0.3, KILLED), (0.3, A_GONE)], KILLED, 0.3),
    ],
)
def test_the_most_telling_word_said_in_time(
    words: list[tuple[float, LayerlineError]], verdict: LayerlineError, at_s: float
) -> None:
    told, after_s = run_in_virtual_time(reached(*words))
    assert told is verdict
    assert after_s == pytest.approx(at_s)


def test_a_word_ends_what_is_being_done_and_what_that_raises_is_a_word() -> None:
    async def world() -> None:
        verdict, ended = Verdict(PATIENCE), asyncio.Event()

        async def works() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.set()

        asyncio.get_running_loop().call_later(1.0, verdict.hear, B_GONE)
        with pytest.raises(NodeLostError):
            await verdict.unless_broken(works())
        assert ended.is_set()

        async def fails() -> None:
            raise KILLED

        other = Verdict(PATIENCE)
        with pytest.raises(StageFailedError):
            await other.unless_broken(fails())
        assert await other.reached() is KILLED

    run_in_virtual_time(world())


def test_what_is_done_in_peace_is_returned_and_the_silent_are_remembered() -> None:
    async def world() -> None:
        verdict = Verdict(PATIENCE)

        async def works() -> int:
            await asyncio.sleep(1)
            return 7

        assert await verdict.unless_broken(works()) == 7
        for word in (ENDED, B_GONE, KILLED):
            verdict.hear(word)
        assert verdict.silent - {""} == {"b"}

    run_in_virtual_time(world())
