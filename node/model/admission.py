"""Whether a frame is one that a stage can compute: checked before anything is allocated.

Owns the checks of a frame against what a stage has loaded. Epoch and step are checked where frames arrive.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from layerline.errors import ProtocolError
from layerline.frames import Frame, Span
from layerline.models.spec import ModelSpec
from layerline.plan import StageSpec

REMEDY = "This is a fault of layerline, not of the request; restart the coordinator and report it."


def check_frame(frame: Frame, stage: StageSpec, model: ModelSpec) -> None:
    """Raises ProtocolError, naming what is wrong, unless `frame` is for a stage that holds `stage` of `model`."""
    _require(frame.rows <= stage.max_rows, frame, f"has {frame.rows} rows, more than {stage.max_rows}")
    _check_tensor(frame, stage, model)
    for span in frame.spans:
        _check_pages(frame, span, stage)
    _check_apart(frame)
    if stage.last_layer == model.layers - 1:
        _check_penalised(frame, model)


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
    capacity, end = sum(run.count for run in span.pages) * stage.page_tokens, span.start + span.count
    covers = f"has pages for {capacity} positions of sequence {span.sequence}, which now has {end}"
    _require(capacity >= end, frame, covers)


def _check_apart(frame: Frame) -> None:
    """No sequence comes twice, and no page is named twice."""
    sequences = [span.sequence for span in frame.spans]
    _require(len(set(sequences)) == len(sequences), frame, "has two spans of one sequence")
    runs = sorted((run.first, run.count, span.sequence) for span in frame.spans for run in span.pages)
    for (first, count, one), (next_first, _, other) in pairwise(runs):
        shared = f"names page {next_first} both for sequence {one} and for sequence {other}"
        _require(first + count <= next_first, frame, shared)


def _check_penalised(frame: Frame, model: ModelSpec) -> None:
    for span in frame.spans:
        ids = span.sampling.penalised if span.sampling else ()
        known = not ids or (min(ids) >= 0 and max(ids) < model.vocabulary)
        what = f"penalises token ids outside 0 to {model.vocabulary - 1} for sequence {span.sequence}"
        _require(known, frame, what)


def _require(condition: bool, frame: Frame, what: str) -> None:
    if not condition:
        raise ProtocolError(f"Step {frame.step} {what}.", remedy=REMEDY)
