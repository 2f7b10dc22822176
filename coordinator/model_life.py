"""The states of a model that is wanted, and what is to be done when its pipeline cannot be built or is lost.

Pure: events in, decisions out; the time is told. States:

absent    nothing is held: not begun, or over.
planning  nodes are looked for, and who holds what is decided.
loading   the nodes load and the pipeline is built.
serving   a pipeline answers.
lost      the pipeline is gone; its answers wait for the next one.
leaving   everything is given back.

A model whose first pipeline cannot be built has failed. One that has served comes back from the loss of a pipeline: it
is planned for again, from the nodes there are then, up to `Recovery.attempts` times and until `Recovery.deadline_s`
after the loss. A pipeline that was lost without having worked is an attempt that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from layerline.errors import InternalError, LayerlineError, error_from_code

ModelState = Literal["absent", "planning", "loading", "serving", "lost", "leaving"]

_NEXT_STATES: dict[ModelState, tuple[ModelState, ...]] = {
    "absent": ("planning",),
    "planning": ("loading", "lost", "leaving"),
    "loading": ("serving", "lost", "leaving"),
    "serving": ("lost", "leaving"),
    "lost": ("planning", "leaving"),
    "leaving": ("absent",),
}
_STORY_LENGTH = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """The bounds of coming back: attempts, the pause before the second one, which doubles, and a time for all."""

    attempts: int = 3
    pause_s: float = 1.0
    deadline_s: float = 900.0  # loading may take long; whatever stands still within it has deadlines of its own
    steady_s: float = 10.0  # a pipeline that stood for so long has worked, though nobody may have asked


@dataclass(frozen=True, kw_only=True, slots=True)
class TryAgain:
    """Plan again after `pause_s`, for the `attempt`th time."""

    pause_s: float
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    """The model leaves, and this is why."""

    error: LayerlineError


Decision = TryAgain | GiveUp


class ModelLife:
    """One life of one model, from absent to absent; `on_change` is called with each change of state.

    Times are seconds of a monotonic clock.
    """

    def __init__(self, recovery: Recovery, on_change: Callable[[], None] = lambda: None) -> None:
        self.state: ModelState = "absent"
        self.cause: LayerlineError | None = None  # of the loss that it is coming back from
        self._recovery = recovery
        self._on_change = on_change
        self._attempts = 0
        self._deadline_s = 0.0
        self._served_s: float | None = None  # since when
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)

    def plan(self) -> None:
        """Planning begins, for the first time or again."""
        self._become("planning", "it is wanted" if self._served_s is None else "it comes back")

    def load(self) -> None:
        """There is a plan."""
        self._become("loading", "it is planned")

    def serve(self, now_s: float) -> None:
        """The pipeline stands."""
        self._become("serving", "its pipeline stands")
        self._served_s = now_s

    def lose(self, now_s: float, *, worked: bool) -> float:
        """Something breaks the pipeline, which has done a step or not; `fail` tells what, once that is known.

        Returns when the model must be back.
        """
        assert self._served_s is not None
        self._become("lost", "its pipeline is lost")
        if worked or now_s - self._served_s >= self._recovery.steady_s:
            self.cause = None
        if self.cause is None:
            self._attempts, self._deadline_s = 0, now_s + self._recovery.deadline_s
        return self._deadline_s

    def fail(self, error: LayerlineError, now_s: float) -> Decision:
        """The pipeline was lost, or could not be planned or built, by `error`: what is to be done."""
        if self.state != "lost" and self._served_s is not None:
            self._become("lost", f"{type(error).__name__} on the way back")
        if self._served_s is None or isinstance(error, InternalError):
            return GiveUp(error=error)
        if self.cause is None:
            self.cause = error
        if self._attempts == self._recovery.attempts or now_s >= self._deadline_s:
            return GiveUp(error=self.told(error))
        self._attempts += 1
        pause_s = self._recovery.pause_s * 2.0 ** (self._attempts - 2) if self._attempts > 1 else 0.0
        return TryAgain(pause_s=pause_s, attempt=self._attempts)

    def told(self, last: LayerlineError) -> LayerlineError:
        """What answers end with: the loss itself, and the `last` error, which kept the model from coming back."""
        cause = self.cause
        if cause is None or cause is last:
            return last
        message = f"{cause.message} The model could not be brought up again: {last.message}"
        return error_from_code(cause.code, message, node=cause.node, remedy=last.remedy or cause.remedy)

    def leave(self, why: str) -> None:
        """It is given up, or not wanted any more."""
        self._become("leaving", why)

    def end(self) -> None:
        """All is given back."""
        self._become("absent", "all is given back")

    def _become(self, state: ModelState, why: str) -> None:
        self._story.append(f"{self.state} → {state} ({why})")
        if state not in _NEXT_STATES[self.state]:
            raise InternalError(f"A model cannot become {state}. Its story: {'; '.join(self._story)}.")
        self.state = state
        self._on_change()
