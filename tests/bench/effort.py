"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How often each case is repeated, and how long an answer it asks for."""

    repeats: int
    answer_tokens: int
    prompt_tokens: int = 512

    def with_repeats(self, repeats: int | None) -> Effort:
        """The same with another number of repetitions, if one is given."""
        return self if repeats is None else replace(self, repeats=repeats)


FULL = Effort(repeats=9, answer_tokens=64)
QUICK = Effort(repeats=2, answer_tokens=32)
