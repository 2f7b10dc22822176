"""Whether a frame is one that a stage can compute: checked before anything is allocated.

Owns the checks of a frame against what a stage has loaded. Epoch and step are checked where frames arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from layerline.errors import ProtocolError
from layerline.frames import Frame, PageRun, Span
from layerline.models.spec import ModelSpec
from layerline.plan import StageSpec

REMEDY = "This is a fault of layerline, not of the request; restart the coordinator and report it."


def check_frame(frame: Frame, stage: StageSpec, model: ModelSpec) -> None:
    """Raises ProtocolError, naming what is wrong, unless `frame` is for a stage that holds `stage` of `model`."""
    _require(frame.rows <= stage.max_rows, frame, f"has {frame.rows} rows, more than {stage.max_rows}")
    _check_tensor(frame, stage, model)
    for span in frame.spans:
        _check_pages(frame, span, stage)
        _check_skipped(frame, span, stage, model)
    _check_apart(frame, stage)
    if stage.last_layer == model.layers - 1:
        _check_ids(frame, model)


def _check_tensor(frame: Frame, stage: StageSpec, model: ModelSpec) -> None:
    first = stage.first_layer == 0
    dtype = "int32" if first else stage.dtype
    shape = (frame.rows,) if first else (frame.rows, model.hidden)
    tensor = frame.tensor
    _require(tensor.dtype == dtype, frame, f"brings {tensor.dtype} to a stage that takes {dtype}")
    _require(tensor.shape == shape, frame, f"brings shape {tensor.shape} to a stage that takes {shape}")
    if first:
        ids = np.frombuffer(tensor.data, np.int32)
        known = ids.min() >= 0 and ids.max() < model.vocabulary
        _require(known, frame, f"has token ids outside 0 to {model.vocabulary - 1}")


def _check_pages(frame: Frame, span: Span, stage: StageSpec) -> None:
    end_page = max(run.first + run.count for run in span.pages)
    names = f"names page {end_page - 1} for sequence {span.sequence}, but the pool ends at {stage.pages - 1}"
    _require(end_page <= stage.pages, frame, names)
    pages, end = span.skipped_pages + sum(run.count for run in span.pages), span.start + span.count
    covers = f"has pages for {pages * stage.page_tokens} positions of sequence {span.sequence}, which now has {end}"
    _require(pages * stage.page_tokens >= end, frame, covers)


def _check_skipped(frame: Frame, span: Span, stage: StageSpec, model: ModelSpec) -> None:
    """The pages that are left out hold only what no layer looks back to."""
    skipped = span.skipped_pages * stage.page_tokens
    unread = max(0, span.start - model.reach_tokens + 1) if model.reach_tokens else 0
    leaves_out = f"leaves out {skipped} positions of sequence {span.sequence}, of which {unread} are not read any more"
    _require(skipped <= unread, frame, leaves_out)


def _check_apart(frame: Frame, stage: StageSpec) -> None:
    """No sequence comes twice, nor a page within one; a page that a span writes is named by no other span.

    Pages that nobody writes in this frame may be shared: that is how sequences have a prefix in common.
    """
    sequences = [span.sequence for span in frame.spans]
    _require(len(set(sequences)) == len(sequences), frame, "has two spans of one sequence")
    spans_naming = np.zeros(stage.pages, np.int32)
    for span in frame.spans:
        _check_distinct(frame, span)
        for run in span.pages:
            spans_naming[run.first : run.first + run.count] += 1
    for span in frame.spans:
        for run in _written(span, stage.page_tokens):
            if spans_naming[run.first : run.first + run.count].max() > 1:
                raise _shared(frame, span, run)


def _check_distinct(frame: Frame, span: Span) -> None:
    for run, following in pairwise(sorted(span.pages, key=lambda run: run.first)):
        twice = f"names page {following.first} twice for sequence {span.sequence}"
        _require(run.first + run.count <= following.first, frame, twice)


def _written(span: Span, page_tokens: int) -> Iterator[PageRun]:
    """Those of the span's pages that hold any of its rows."""
    begin, end = span.start // page_tokens, -(-(span.start + span.count) // page_tokens)
    index = span.skipped_pages  # of the run's first page among the sequence's
    for run in span.pages:
        first, last = max(begin, index), min(end, index + run.count)
        if first < last:
            yield PageRun(first=run.first + first - index, count=last - first)
        index += run.count


def _shared(frame: Frame, writer: Span, written: PageRun) -> ProtocolError:
    page, other = next(
        (max(run.first, written.first), span.sequence)
        for span in frame.spans
        if span.sequence != writer.sequence
        for run in span.pages
        if run.first < written.first + written.count and written.first < run.first + run.count
    )
    what = f"writes page {page} for sequence {writer.sequence} and names it for sequence {other}"
    return ProtocolError(f"Step {frame.step} {what}.", remedy=REMEDY)


def _check_ids(frame: Frame, model: ModelSpec) -> None:
    """The ids beside those of rows, which only the last stage uses."""
    for span in frame.spans:
        penalised = (*span.sampling.prompt_ids, *span.sampling.answer_ids) if span.sampling else ()
        for ids, done in ((penalised, "penalises"), (span.next_ids, "scores")):
            known = not ids or (min(ids) >= 0 and max(ids) < model.vocabulary)
            what = f"{done} token ids outside 0 to {model.vocabulary - 1} for sequence {span.sequence}"
            _require(known, frame, what)


def _require(condition: bool, frame: Frame, what: str) -> None:
    if not condition:
        raise ProtocolError(f"Step {frame.step} {what}.", remedy=REMEDY)
