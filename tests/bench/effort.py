"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """How often each case is repeated, and how much it asks for.

    `long_repeats` is for cases that ask for much, `sleep_repeats` for those whose stages sleep, `sleep_scale` of their
    time. The names of ratios tell the sizes of a full measurement, also where less was asked for.
    """

    repeats: int
    answer_tokens: int
    prompt_tokens: int = 512
    long_repeats: int
    sleep_repeats: int
    long_prompt_tokens: int = 2048
    longest_prompt_tokens: int = 4096
    lead_tokens: int = 48  # that answers have before something else begins beside them
    sleep_scale: float = 1.0

    def with_repeats(self, repeats: int | None) -> Effort:
        """The same with another number of repetitions of every case, if one is given."""
        return self if repeats is None else replace(self, repeats=repeats, long_repeats=repeats, sleep_repeats=repeats)


FULL = Effort(repeats=9, answer_tokens=64, long_repeats=5, sleep_repeats=2)
QUICK = Effort(
    repeats=2,
    answer_tokens=32,
    long_repeats=1,
    sleep_repeats=1,
    long_prompt_tokens=256,
    longest_prompt_tokens=512,
    lead_tokens=8,
    sleep_scale=0.015,
)
