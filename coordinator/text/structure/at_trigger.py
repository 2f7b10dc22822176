"""A constraint that holds for calls to tools alone: it begins with the text that calls begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.scheduling.constraint import Constraint
from layerline.token_mask import TokenMask


@dataclass(frozen=True, kw_only=True, slots=True)
class Trigger:
    """The text that calls begin with, wherever it comes; `text_of` gives a token's bytes, those of markers too.

    `overrunning` gives the tokens that begin with some text and have more: one of them would have part of a call
    behind the end of the trigger, where nothing holds it.
    """

    text: bytes
    text_of: Callable[[int], bytes]
    overrunning: Callable[[bytes], Sequence[int]]


class AtTrigger:
    """`inner` holds from the trigger to the end of the calls, and again at the next one; before it all is free."""

    def __init__(self, inner: Constraint, trigger: Trigger) -> None:
        self._inner = inner
        self._trigger = trigger
        self._held: Constraint | None = None
        self._end = b""  # of what came since the last call

    @property
    def is_over(self) -> bool:
        """Never: after calls a model may say more."""
        return False

    @property
    def failure(self) -> str:
        """Why a call cannot be followed any further."""
        return self._held.failure if self._held else ""

    def mask(self) -> TokenMask | None:
        """Which tokens may come next."""
        if self._held:
            return self._held.mask()
        text = self._trigger.text
        ends = (length for length in range(len(text)) if self._end.endswith(text[:length]))
        forbidden = sorted({id_ for length in ends for id_ in self._trigger.overrunning(text[length:])})
        return TokenMask.forbidding(forbidden) if forbidden else None

    def take(self, token_id: int) -> tuple[int, ...]:
        """A token was drawn."""
        if self._held:
            forced = self._held.take(token_id)
            if self._held.is_over:
                self._held = None
            return forced
        self._end = (self._end + self._trigger.text_of(token_id))[-len(self._trigger.text) :]
        if self._end.endswith(self._trigger.text):
            self._end = b""
            self._held = self._inner.fork()
        return ()

    def fork(self) -> AtTrigger:
        """One for another answer; forks are made before anything is drawn."""
        return AtTrigger(self._inner.fork(), self._trigger)
