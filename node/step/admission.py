"""Whether a frame is one that a stage can compute: checked before anything is allocated.

Owns the checks of a frame against what a stage has loaded. Epoch and step are checked where frames arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from layerline.errors import ProtocolError
from layerline.frames import Frame, PageRun, Span
from layerline.mask_forms import ids_end
from layerline.models.row_layout import row_into
from layerline.models.slot_sizes import slots_of
from layerline.models.spec import ModelSpec
from layerline.plan import StageSpec

REMEDY = "This is a fault of layerline, not of the request; restart the coordinator and report it."


def check_frame(frame: Frame, stage: StageSpec, model: ModelSpec) -> None:
    """Raises ProtocolError, naming what is wrong, unless `frame` is for a stage that holds `stage` of `model`."""
    if frame.rows > stage.max_rows:
        raise _wrong(frame, f"has {frame.rows} rows, more than {stage.max_rows}")
    _check_tensor(frame, stage, model)
    for span in frame.spans:
        _check_pages(frame, span, stage)
        _check_skipped(frame, span, stage, model)
    _check_apart(frame, stage)
    _check_states(frame, stage, model)
    if stage.last_layer == model.layers - 1:
        _check_ids(frame, model)


def _check_tensor(frame: Frame, stage: StageSpec, model: ModelSpec) -> None:
    first = stage.first_layer == 0
    dtype = "int32" if first else stage.dtype
    row = None if first else row_into(model, stage.first_layer)
    shape = (frame.rows,) if row is None else (frame.rows, row.numbers)
    tensor = frame.tensor
    if tensor.dtype != dtype:
        raise _wrong(frame, f"brings {tensor.dtype} to a stage that takes {dtype}")
    if tensor.shape != shape:
        raise _wrong(frame, f"brings shape {tensor.shape} to a stage that takes {shape}")
    if (frame.ids is not None) != (row is not None and row.needs_ids):
        raise _wrong(frame, "brings token ids beside its rows" if frame.ids else "brings no token ids beside its rows")
    for each in (frame.tensor if first else None, frame.ids):
        if each is not None:
            ids = memoryview(each.data).cast("i")
            if min(ids) < 0 or max(ids) >= model.vocabulary:
                raise _wrong(frame, f"has token ids outside 0 to {model.vocabulary - 1}")


def _check_pages(frame: Frame, span: Span, stage: StageSpec) -> None:
    end_page = max([run.first + run.count for run in span.pages])
    if end_page > stage.pages:
        names = f"names page {end_page - 1} for sequence {span.sequence}, but the pool ends at {stage.pages - 1}"
        raise _wrong(frame, names)
    pages, end = span.skipped_pages + sum([run.count for run in span.pages]), span.start + span.count
    if pages * stage.page_tokens < end:
        covered = pages * stage.page_tokens
        raise _wrong(frame, f"has pages for {covered} positions of sequence {span.sequence}, which now has {end}")


def _check_skipped(frame: Frame, span: Span, stage: StageSpec, model: ModelSpec) -> None:
    """The pages that are left out hold only what no layer looks back to."""
    if not span.skipped_pages:
        return
    skipped = span.skipped_pages * stage.page_tokens
    unread = max(0, span.start - model.reach_tokens + 1) if model.reach_tokens else 0
    if skipped > unread:
        what = f"leaves out {skipped} positions of sequence {span.sequence}, of which {unread} are not read any more"
        raise _wrong(frame, what)


def _check_apart(frame: Frame, stage: StageSpec) -> None:
    """No sequence comes twice, nor a page within one; a page that a span writes is named by no other span.

    Pages that nobody writes in this frame may be shared: that is how sequences have a prefix in common.
    """
    if len({span.sequence for span in frame.spans}) != len(frame.spans):
        raise _wrong(frame, "has two spans of one sequence")
    named = sorted([(run.first, run.first + run.count) for span in frame.spans for run in span.pages])
    if all(end <= following for (_, end), (following, _) in pairwise(named)):
        return  # no page is named twice, as in most frames
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
        if run.first + run.count > following.first:
            raise _wrong(frame, f"names page {following.first} twice for sequence {span.sequence}")


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
    return _wrong(frame, what)


def _check_states(frame: Frame, stage: StageSpec, model: ModelSpec) -> None:
    """Of a recurrent model every row has a slot that there is, and no slot that a span writes is used by another one.

    Slots that nobody writes in this frame may be the source of several: that is how sequences go on from a checkpoint.
    """
    slots = slots_of(model, stage.held_kv_dtype, stage.pages * stage.page_tokens)
    writers: dict[int, int] = {}  # slot -> sequence
    for span in frame.spans:
        if bool(span.states) != model.is_recurrent:
            has = "no states" if model.is_recurrent else "states"
            kind = "a model with" if model.is_recurrent else "a model without"
            raise _wrong(frame, f"has {has} for sequence {span.sequence} of {kind} recurrent layers")
        for run in span.states:
            last = run.target if run.source is None else max(run.source, run.target)
            if last >= slots:
                names = f"names slot {last} for sequence {span.sequence}, but the slots end at {slots - 1}"
                raise _wrong(frame, names)
            writer = writers.setdefault(run.target, span.sequence)
            if writer != span.sequence:
                raise _wrong(frame, f"writes slot {run.target} for sequences {writer} and {span.sequence}")
    for span in frame.spans:
        for run in span.states:
            writer = writers.get(run.source, span.sequence) if run.source is not None else span.sequence
            if writer != span.sequence:
                what = (
                    f"writes slot {run.source} for sequence {writer} and goes on from it for sequence {span.sequence}"
                )
                raise _wrong(frame, what)


def _check_ids(frame: Frame, model: ModelSpec) -> None:
    """The ids beside those of rows, which only the last stage uses."""
    for span in frame.spans:
        penalised = (*span.sampling.prompt_ids, *span.sampling.answer_ids) if span.sampling else ()
        for ids, done in ((penalised, "penalises"), (span.next_ids, "scores")):
            if ids and (min(ids) < 0 or max(ids) >= model.vocabulary):
                what = f"{done} token ids outside 0 to {model.vocabulary - 1} for sequence {span.sequence}"
                raise _wrong(frame, what)
        if span.sampling and span.sampling.bias_ids and max(span.sampling.bias_ids) >= model.vocabulary:
            what = f"biases token ids outside 0 to {model.vocabulary - 1} for sequence {span.sequence}"
            raise _wrong(frame, what)
        if span.sampling and span.sampling.mask and ids_end(span.sampling.mask) > model.vocabulary:
            what = f"masks token ids outside 0 to {model.vocabulary - 1} for sequence {span.sequence}"
            raise _wrong(frame, what)


def _wrong(frame: Frame, what: str) -> ProtocolError:
    return ProtocolError(f"Step {frame.step} {what}.", remedy=REMEDY)
