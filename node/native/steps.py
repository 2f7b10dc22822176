"""What the kernels are told of a step: its rows, where they lie, and after which of them logits are wanted.

Written for speed, since it is between a frame's arrival and its computing: plain numbers, no arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from layerline.frames import Span
from node.kernels.structures import PageRun, Step, StepSpan


def step_of(
    data: bytes, spans: Sequence[Span], picked: Sequence[int], page_tokens: int, ids: bytes | None = None
) -> Step:
    """The step of these rows, the first stage's as ids; other stages may have `ids` beside. Keeps what it points to.

    `spans` have been checked, and `picked` are numbers of rows.
    """
    placed: list[StepSpan] = []
    runs: list[PageRun] = []
    rows = 0
    for span in spans:
        first_position = span.skipped_pages * page_tokens
        placed.append(StepSpan(rows, span.count, first_position, span.start, len(runs), len(span.pages)))
        runs += [PageRun(run.first, run.count) for run in span.pages]
        rows += span.count
    return Step(
        rows=rows,
        span_count=len(placed),
        spans=(StepSpan * len(placed))(*placed),
        runs=(PageRun * len(runs))(*runs),
        input=data,
        ids=data if ids is None else ids,
        picked=_numbers(picked),
        picked_count=len(picked),
    )


def picking_step(picked: Sequence[int]) -> Step:
    """A step that only picks rows of the one before."""
    return Step(picked=_numbers(picked), picked_count=len(picked))


def _numbers(rows: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(rows))(*rows)
