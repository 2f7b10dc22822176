"""What the scheduler has to give out, and the bounds it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.checks import require


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """What the pipeline offers and the queue bounds.

    `chunk_tokens` bounds the prompt rows of a step; within it, `pacing` chooses. `max_in_flight` is the
    number of stages: of steps in flight there are so many, or one more (see `flight` and `Scheduler`).
    `open_ended_tokens` is what a request without a limit gets memory for at a time (see `memory`).
    """

    pages: int
    page_tokens: int
    max_rows: int
    chunk_tokens: int
    context_tokens: int
    max_in_flight: int
    max_waiting: int
    open_ended_tokens: int = 1024

    def __post_init__(self) -> None:
        sizes = (self.pages, self.page_tokens, self.max_rows, self.chunk_tokens, self.context_tokens)
        bounds = (self.max_in_flight, self.max_waiting, self.open_ended_tokens)
        require(min(*sizes, *bounds) > 0, "every size and bound of a scheduler must be positive")
