"""The speeds that programs are compared by."""

from __future__ import annotations

from typing import Protocol

from tests.bench.effort import Effort


class Speeds(Protocol):
    """The speeds of one program on the machines that it was given, each measured when it is asked for.

    All are tokens per second. `repetition` keeps what one asks for from being remembered at the next.
    """

    def decode(self, effort: Effort, repetition: int) -> float:
        """One stream after a short prompt."""

    def prompt(self, prompt_tokens: int, repetition: int) -> float:
        """One prompt."""

    def crowd(self, streams: int, effort: Effort, repetition: int) -> float:
        """Several streams after short prompts, all together."""
