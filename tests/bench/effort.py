"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How often each case is repeated, and how long an answer it asks for."""

    repeats: int
    answer_tokens: int
    prompt_tokens: int = 512


FULL = Effort(repeats=5, answer_tokens=128)
QUICK = Effort(repeats=2, answer_tokens=32)
