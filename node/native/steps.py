"""What the kernels are told of a step: its rows, where they lie, and after which of them logits are wanted.

Written for speed, since it is between a frame's arrival and its computing: plain numbers, no arrays.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from layerline import frames
from layerline.frames import Span
from node.kernels.structures import PageRun, StateRun, Step, StepSpan


def step_of(
    data: bytes, spans: Sequence[Span], picked: Sequence[int], page_tokens: int, ids: bytes | None = None
) -> Step:
    """The step of these rows, the first stage's as ids; other stages may have `ids` beside. Keeps what it points to.

    `spans` have been checked, and `picked` are numbers of rows.
    """
    placed: list[StepSpan] = []
    runs: list[PageRun] = []
    states: list[StateRun] = []
    rows = 0
    for span in spans:
        pages, own, first_position = span.pages, span.states, span.skipped_pages * page_tokens
        first_run, first_state = len(runs), len(states)
        placed.append(
            StepSpan(rows, span.count, first_position, span.start, first_run, len(pages), first_state, len(own))
        )
        runs += [PageRun(run.first, run.count) for run in pages]
        if own:
            states += _states_of(own, rows)
        rows += span.count
    return Step(
        rows=rows,
        span_count=len(placed),
        spans=(StepSpan * len(placed))(*placed),
        runs=(PageRun * len(runs))(*runs),
        states=(StateRun * len(states))(*states),
        input=data,
        ids=data if ids is None else ids,
        picked=_numbers(picked),
        picked_count=len(picked),
    )


def _states_of(runs: Sequence[frames.StateRun], row: int) -> Iterator[StateRun]:
    """Those of rows from `row` on."""
    for run in runs:
        yield StateRun(row, run.count, -1 if run.source is None else run.source, run.target)
        row += run.count


def picking_step(picked: Sequence[int]) -> Step:
    """A step that only picks rows of the one before."""
    return Step(picked=_numbers(picked), picked_count=len(picked))


def _numbers(rows: Sequence[int]) -> ctypes.Array[ctypes.c_int32]:
    return (ctypes.c_int32 * len(rows))(*rows)
