"""The figures of the scheduler, which can be asked for at any time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotFigures:
    """Slots of recurrent state, by use as pages are."""

    used: int
    cached: int
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SchedulerFigures:
    """Sequences by state, pages by use, and counts since the scheduler was made.

    `sequences_leaving` have ended or been preempted and wait for their last steps. `pages_used` have an owner,
    `pages_cached` hold prefixes and can be had at any time. `lookup_tokens` are the tokens of all sequences when they
    were admitted; `hit_tokens` of them were cached.
    """

    sequences_waiting: int
    sequences_prefilling: int
    sequences_decoding: int
    sequences_leaving: int
    pages_used: int
    pages_cached: int
    pages_free: int
    lookup_tokens: int
    hit_tokens: int
    preemptions: int
    steps: int
    steps_in_flight: int
    decode_rows: int
    prompt_rows: int
    slots: SlotFigures | None = None  # None if the model has no recurrent layer
