"""What the scheduler has to give out, and the bounds it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.checks import require
from layerline.models.sizes import most_sequence_pages, reach_pages
from layerline.plan import PipelinePlan

CHUNK_TOKENS = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """What the pipeline offers and the queue bounds.

    `chunk_tokens` bounds the prompt rows of a step; within it, `pacing` chooses. `max_in_flight` is the
    number of stages: of steps in flight there are so many, or one more (see `flight` and `Scheduler`).
    `open_ended_tokens` is what a request without a limit gets memory for at a time (see `memory`). `reach_tokens` is
    the window that every layer of the model has, 0 if there is none.
    """

    pages: int
    page_tokens: int
    max_rows: int
    chunk_tokens: int
    context_tokens: int
    max_in_flight: int
    max_waiting: int
    open_ended_tokens: int = 1024
    reach_tokens: int = 0

    def __post_init__(self) -> None:
        sizes = (self.pages, self.page_tokens, self.max_rows, self.chunk_tokens, self.context_tokens)
        bounds = (self.max_in_flight, self.max_waiting, self.open_ended_tokens)
        require(min(*sizes, *bounds) > 0, "every size and bound of a scheduler must be positive")
        require(self.reach_tokens >= 0, "reach_tokens must not be negative")

    @classmethod
    def of(cls, pipeline: PipelinePlan, context_tokens: int, *, reach_tokens: int, max_waiting: int) -> Capacity:
        """The capacity of `pipeline`."""
        return cls(
            pages=pipeline.pages,
            page_tokens=pipeline.page_tokens,
            max_rows=pipeline.max_rows,
            chunk_tokens=min(CHUNK_TOKENS, pipeline.max_rows),
            context_tokens=context_tokens,
            max_in_flight=len(pipeline.stages),
            max_waiting=max_waiting,
            reach_tokens=reach_tokens,
        )

    @property
    def sequence_pages(self) -> int:
        """The most pages that a sequence has at a time."""
        return most_sequence_pages(self.reach_tokens, self.context_tokens, self.max_rows, self.page_tokens)

    @property
    def reach_pages(self) -> int | None:
        """How many pages before its own the first row of a page reads, but at least 1; None if it reads all."""
        return reach_pages(self.reach_tokens, self.page_tokens) if self.reach_tokens else None
