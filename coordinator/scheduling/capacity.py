"""The pages and rows that the scheduler gives out, and the bounds that it keeps."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.checks import require
from layerline.frames import MAX_SLOTS
from layerline.models.kv_sizes import most_sequence_pages, reach_pages
from layerline.models.slot_sizes import slots_of
from layerline.models.spec import ModelSpec
from layerline.plan import PipelinePlan

CHUNK_TOKENS = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """The sizes of a pipeline, and the bounds of the queue.

    `chunk_tokens` bounds the prompt rows of a step, within which `row_budget` decides. `max_in_flight` is the number of
    stages: as many steps are in flight, or one more (see `steps_in_flight`). A request without a limit gets pages for
    `open_ended_tokens` at a time (see `kv_pages`). `reach_tokens` is the window that every layer of the model has, 0 if
    there is none. `slots` is how many recurrent states the stages hold, 0 if the model has no recurrent layer; a
    sequence that goes on from one in another needs two.
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
    slots: int = 0

    def __post_init__(self) -> None:
        sizes = (self.pages, self.page_tokens, self.max_rows, self.chunk_tokens, self.context_tokens)
        bounds = (self.max_in_flight, self.max_waiting, self.open_ended_tokens)
        require(min(*sizes, *bounds) > 0, "every size and bound of a scheduler must be positive")
        require(self.reach_tokens >= 0, "reach_tokens must not be negative")
        require(self.slots == 0 or 2 <= self.slots <= MAX_SLOTS, "slots out of range")

    @classmethod
    def of(cls, pipeline: PipelinePlan, context_tokens: int, model: ModelSpec, *, max_waiting: int) -> Capacity:
        """The capacity of a pipeline of `model`."""
        specs, tokens = [stage.spec for stage in pipeline.stages], pipeline.pages * pipeline.page_tokens
        return cls(
            pages=pipeline.pages,
            page_tokens=pipeline.page_tokens,
            max_rows=pipeline.max_rows,
            chunk_tokens=min(CHUNK_TOKENS, pipeline.max_rows),
            context_tokens=context_tokens,
            max_in_flight=len(pipeline.stages),
            max_waiting=max_waiting,
            reach_tokens=model.reach_tokens,
            slots=min(MAX_SLOTS, *(slots_of(model, spec.held_kv_dtype, tokens) for spec in specs)),
        )

    @property
    def tokens(self) -> int:
        """Positions that all pages hold."""
        return self.pages * self.page_tokens

    @property
    def sequence_pages(self) -> int:
        """The most pages that a sequence has at a time."""
        return most_sequence_pages(self.reach_tokens, self.context_tokens, self.max_rows, self.page_tokens)

    @property
    def reach_pages(self) -> int | None:
        """Pages that the first row of a page looks back to, at least 1; None if it looks back to all."""
        return reach_pages(self.reach_tokens, self.page_tokens) if self.reach_tokens else None
