"""Small schedulers, requests for them, and what their steps say."""

from __future__ import annotations

import struct
from typing import Any

from coordinator.scheduling.capacity import Capacity
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.scheduling.step import Step
from layerline.frames import TensorBytes
from layerline.step_result import RowSum, SampledToken, StepResult, TokenScores

CAPACITY: dict[str, int] = {
    "pages": 64,
    "page_tokens": 4,
    "max_rows": 16,
    "chunk_tokens": 8,
    "context_tokens": 100,
    "max_in_flight": 2,
    "max_waiting": 8,
    "open_ended_tokens": 8,
}


def capacity(**changes: int) -> Capacity:
    return Capacity(**(CAPACITY | changes))


def scheduler(**changes: int) -> Scheduler:
    return Scheduler(capacity(**changes))


def request(sequence: int, prompt_tokens: int, max_tokens: int = 4, **fields: Any) -> SequenceRequest:
    """A prompt that has no token in common with those of other sequences."""
    token_ids = tuple(range(100 * sequence, 100 * sequence + prompt_tokens))
    return SequenceRequest(sequence=sequence, token_ids=token_ids, max_tokens=max_tokens, **fields)


def issued(step: Step | None) -> list[tuple[int, int, int, bool]]:
    """(sequence, start, count, whether a token is drawn) of each span."""
    assert step is not None
    return [(span.sequence, span.start, span.count, span.sampling is not None) for span in step.spans]


def result(step: Step | None, **tokens: int) -> StepResult:
    """The step's result; `_2=7` gives token 7 to sequence 2. Each known token that is to be scored has minus its id,
    the sum of rows is the position after them.
    """
    assert step is not None
    ends = {span.sequence: span.end for span in step.spans}
    sampled = tuple(
        SampledToken(sequence=int(name[1:]), position=ends.get(int(name[1:]), 0), token_id=token)
        for name, token in tokens.items()
    )
    scores = tuple(
        TokenScores(
            sequence=span.sequence,
            position=span.scored_positions.start,
            log_probabilities=tuple(-float(id_) for id_ in span.next_ids),
            likeliest_ids=tuple(range(span.likeliest)) * len(span.next_ids),
            likeliest_log_probabilities=(-0.5,) * span.likeliest * len(span.next_ids),
        )
        for span in step.spans
        if span.next_ids
    )
    sums = tuple(
        RowSum(sequence=span.sequence, end=span.end, rows=span.summed, total=float_row(span.end))
        for span in step.spans
        if span.summed
    )
    return StepResult(epoch=1, step=step.number, sampled=sampled, scores=scores, sums=sums)


def float_row(*numbers: float) -> TensorBytes:
    """One float32 row."""
    return TensorBytes(dtype="float32", shape=(len(numbers),), data=struct.pack(f"<{len(numbers)}f", *numbers))
