"""A rank's part in a move of experts: prepared beside the steps, taken or forgotten, and what can fail."""

from __future__ import annotations

import queue
import threading

import pytest

from layerline.errors import ModelCorruptError, StageFailedError
from layerline.models.expert_placement import ExpertPlacement
from node import pipe
from node.worker.expert_moves import ExpertMoves
from tests.fakes.stage_experts import FakeExperts

Answers = queue.Queue[pipe.FromWorker]
PLACES = ((0, 2), (1,))


def prepare(move: int, layer: int = 3) -> pipe.PrepareExperts:
    return pipe.PrepareExperts(move=move, layer=layer, ranks=PLACES)


def test_what_is_prepared_is_taken_once() -> None:
    experts, answers = FakeExperts(), Answers()
    moves = ExpertMoves(experts, "kitchen")
    moves.begin(prepare(1), answers.put)
    assert answers.get(timeout=20.0) == pipe.Prepared(move=1)
    assert experts.taken == []
    moves.take(1)
    assert experts.taken == [(3, ExpertPlacement(PLACES))]
    with pytest.raises(StageFailedError, match="has not prepared"):
        moves.take(1)


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (MemoryError(), "stage_failed", "cannot load the experts that were to come (MemoryError)"),
        (RuntimeError("CUDA out of memory"), "stage_failed", "(CUDA out of memory)"),
        (AssertionError("nobody thought of it"), "stage_failed", "(nobody thought of it)"),
        (KeyError(7), "stage_failed", "cannot load the experts that were to come (7)"),
        (OSError(5, "Input/output error"), "model_corrupt", "cannot read the experts"),
        (ValueError("a rank has an expert twice"), "protocol", "Experts cannot be placed so on node kitchen"),
        (ModelCorruptError("The bytes of a tensor have changed."), "model_corrupt", "have changed"),
    ],
)
def test_what_cannot_be_prepared_is_refused_and_nothing_can_be_taken(
    failure: BaseException, code: str, words: str
) -> None:
    experts, answers = FakeExperts(failure), Answers()
    moves = ExpertMoves(experts, "kitchen")
    moves.begin(prepare(1), answers.put)
    refused = answers.get(timeout=20.0)
    assert isinstance(refused, pipe.Refused)
    assert refused.code == code
    assert words in refused.message
    with pytest.raises(StageFailedError):
        moves.take(1)
    assert experts.taken == []


def test_a_move_that_is_forgotten_while_it_is_prepared_is_never_taken() -> None:
    go = threading.Event()
    experts, answers = FakeExperts(go=go.wait), Answers()
    moves = ExpertMoves(experts, "kitchen")
    moves.begin(prepare(1), answers.put)
    moves.forget(1)
    go.set()
    with pytest.raises(StageFailedError):
        moves.take(1)
    moves.begin(prepare(2, layer=5), answers.put)
    while answers.get(timeout=20.0) != pipe.Prepared(move=2):
        pass  # the first is loaded if it was begun before it was forgotten
    moves.forget(1)
    moves.take(2)
    assert experts.taken == [(5, ExpertPlacement(PLACES))]


def test_what_is_forgotten_before_its_turn_is_not_loaded() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return go.wait()

    experts, answers = FakeExperts(go=wait), Answers()
    moves = ExpertMoves(experts, "kitchen")
    moves.begin(prepare(1), answers.put)
    assert begun.wait(20.0)
    moves.begin(prepare(2), answers.put)  # waits for its turn
    moves.begin(prepare(3), answers.put)
    go.set()
    assert [answers.get(timeout=20.0) for _ in range(2)] == [pipe.Prepared(move=1), pipe.Prepared(move=3)]
    assert answers.empty()


def test_the_later_of_two_moves_is_the_one_that_counts() -> None:
    experts, answers = FakeExperts(), Answers()
    moves = ExpertMoves(experts, "kitchen")
    for move in (1, 2):
        moves.begin(prepare(move, layer=move), answers.put)
    while answers.get(timeout=20.0) != pipe.Prepared(move=2):
        pass
    with pytest.raises(StageFailedError, match="move 1"):
        moves.take(1)
    moves.take(2)
    assert experts.taken == [(2, ExpertPlacement(PLACES))]


def test_it_is_told_that_a_move_is_taken_whichever_comes_first() -> None:
    answers = Answers()
    moves = ExpertMoves(FakeExperts(), "kitchen")
    for move, is_early in ((1, True), (2, False)):
        moves.begin(prepare(move), answers.put)
        assert answers.get(timeout=20.0) == pipe.Prepared(move=move)
        if is_early:
            moves.tell_taken(move, answers.put)
            assert answers.empty()
        moves.take(move)
        if not is_early:
            moves.tell_taken(move, answers.put)
        assert answers.get_nowait() == pipe.Taken(move=move)
