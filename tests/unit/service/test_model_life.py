"""Tables of what happens to a model in service, and what is then to be done."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coordinator.model_life import Decision, GiveUp, ModelLife, ModelState, Recovery, TryAgain
from layerline.errors import (
    InternalError,
    LayerlineError,
    NodeLostError,
    NodeUnreachableError,
    NoNodesError,
    PlanDoesNotFitError,
    StageFailedError,
)

RECOVERY = Recovery(attempts=3, pause_s=1.0, deadline_s=60.0, steady_s=10.0)
KILLED = StageFailedError("The worker of node b was killed.", node="b", remedy="Look at its log.")
NOBODY = NoNodesError("No node can be used.", remedy="Start one.")


def served(now_s: float = 100.0) -> ModelLife:
    """A life in the state serving since then."""
    life = ModelLife(RECOVERY)
    life.plan()
    life.load()
    life.serve(now_s)
    return life


def back(life: ModelLife, now_s: float) -> None:
    life.plan()
    life.load()
    life.serve(now_s)


def test_the_way_of_a_model_that_is_never_lost() -> None:
    seen: list[ModelState] = []
    life = ModelLife(RECOVERY, lambda: seen.append(life.state))
    assert life.state == "absent"
    life.plan()
    life.load()
    life.serve(5.0)
    life.leave("it is not wanted any more")
    life.end()
    assert seen == ["planning", "loading", "serving", "leaving", "absent"]


@pytest.mark.parametrize("loading", [False, True])
def test_the_first_pipeline_has_one_attempt(loading: bool) -> None:
    life = ModelLife(RECOVERY)
    life.plan()
    if loading:
        life.load()
    assert life.fail(NOBODY, 1.0) == GiveUp(error=NOBODY)


def test_a_loss_is_answered_with_a_new_plan_at_once() -> None:
    life = served()
    assert life.lose(130.0, worked=True) == 190.0, "by when it must be back"
    assert (life.state, life.cause) == ("lost", None)
    assert life.fail(KILLED, 130.1) == TryAgain(pause_s=0.0, attempt=1)
    assert life.cause is KILLED
    back(life, 131.0)
    assert (life.state, life.cause) == ("serving", KILLED)


def test_attempts_are_bounded_and_further_apart_and_the_end_tells_the_cause_and_what_is_missing() -> None:
    life = served()
    life.lose(130.0, worked=True)
    decisions: list[Decision] = [life.fail(KILLED, 130.0)]
    for _ in range(3):
        life.plan()
        decisions.append(life.fail(NOBODY, 131.0))
        assert life.state == "lost"
    *tries, end = decisions
    assert tries == [TryAgain(pause_s=pause_s, attempt=n) for n, pause_s in ((1, 0.0), (2, 1.0), (3, 2.0))]
    assert isinstance(end, GiveUp)
    assert isinstance(end.error, StageFailedError)
    assert end.error.message == (
        "The worker of node b was killed. The model could not be brought up again: No node can be used."
    )
    assert (end.error.node, end.error.remedy) == ("b", "Start one.")


def test_a_failure_while_it_loads_again_is_an_attempt() -> None:
    life = served()
    life.lose(130.0, worked=True)
    life.fail(KILLED, 130.0)
    life.plan()
    life.load()
    lost = NodeLostError("The connection to node c is gone.", node="c")
    assert life.fail(lost, 131.0) == TryAgain(pause_s=1.0, attempt=2)
    assert (life.state, life.cause) == ("lost", KILLED)


def test_no_attempt_begins_after_the_deadline() -> None:
    life = served()
    life.lose(130.0, worked=True)
    life.fail(KILLED, 130.0)
    life.plan()
    assert isinstance(life.fail(NOBODY, 190.0), GiveUp)


@pytest.mark.parametrize(
    ("stood_s", "worked", "attempt"),
    [(1.0, True, 1), (10.0, False, 1), (9.9, False, 2)],
)
def test_a_pipeline_that_did_nothing_before_it_was_lost_again_is_an_attempt_that_failed(
    stood_s: float, worked: bool, attempt: int
) -> None:
    life = served()
    life.lose(130.0, worked=True)
    life.fail(KILLED, 130.0)
    back(life, 131.0)
    life.lose(131.0 + stood_s, worked=worked)
    decision = life.fail(StageFailedError("Again."), 131.0 + stood_s)
    assert isinstance(decision, TryAgain)
    assert decision.attempt == attempt


def test_a_bug_is_not_tried_again() -> None:
    life = served()
    life.lose(130.0, worked=True)
    bug = InternalError("Internal error.")
    assert life.fail(bug, 130.0) == GiveUp(error=bug)


EVENTS: dict[str, Callable[[ModelLife], object]] = {
    "plan": lambda life: life.plan(),
    "load": lambda life: life.load(),
    "serve": lambda life: life.serve(2.0),
    "lose": lambda life: life.lose(3.0, worked=True),
    "leave": lambda life: life.leave("it is not wanted"),
    "end": lambda life: life.end(),
}
ALLOWED: dict[str, Sequence[str]] = {
    "": ["plan"],
    "plan": ["load", "leave"],
    "plan load": ["serve", "leave"],
    "plan load serve": ["lose", "leave"],
    "plan load serve lose": ["plan", "leave"],
    "plan leave": ["end"],
    "plan leave end": ["plan"],
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("path", ALLOWED)
def test_what_may_follow_what_and_the_story_of_what_may_not(path: str, event: str) -> None:
    life = ModelLife(RECOVERY)
    for step in path.split():
        EVENTS[step](life)
    if event in ALLOWED[path]:
        EVENTS[event](life)
        return
    if event == "lose" and "serve" not in path:
        with pytest.raises(AssertionError):
            EVENTS[event](life)
        return
    with pytest.raises(InternalError, match="A model cannot become") as raised:
        EVENTS[event](life)
    assert raised.value.message.count("→") == len(path.split()) + 1


@pytest.mark.parametrize(
    ("cause", "last"),
    [(KILLED, KILLED), (NodeUnreachableError("b"), PlanDoesNotFitError("Too small.", remedy="Add a node."))],
)
def test_what_is_told_in_the_end(cause: LayerlineError, last: LayerlineError) -> None:
    life = served()
    life.lose(1.0, worked=True)
    life.fail(cause, 1.0)
    told = life.told(last)
    assert type(told) is type(cause)
    assert told.remedy == last.remedy
    assert told.message.startswith(cause.message)
    assert told.message.endswith(last.message)
