"""A stage: some layers of a model in memory, obeying frames.

Owns what a frame asks for: its checks, which rows tokens are drawn or scored after or are summed, which sequences have
failed. Keeps no state about sequences: a frame says where its rows are, what they read and how tokens are drawn. What
computes the layers is behind a seam (`node.step.computation`); knows nothing of transports, plans, clocks or other
stages either.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from layerline.frames import Frame
from layerline.models.card import ModelCard
from layerline.models.row_layout import row_into
from layerline.plan import StageSpec
from layerline.step_result import StepResult
from node.step.admission import check_frame
from node.step.computation import Computation, PassedRows, StageExperts, wanted_tokens
from node.step.span_scores import scored_rows, span_scores, span_sums, summed_rows


class Stage:
    """The layers that `spec` names of the model of `card`, as `computation` has them."""

    def __init__(self, card: ModelCard, spec: StageSpec, computation: Computation) -> None:
        self._model = card.spec
        self._spec = spec
        self._computation = computation
        self._is_last = spec.last_layer == card.spec.layers - 1
        self._ids_go_on = not self._is_last and row_into(card.spec, spec.last_layer + 1).needs_ids

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights that this rank has."""
        return self._computation.weights_bytes

    @property
    def experts(self) -> StageExperts:
        """The experts of its layers, as far as this rank has them."""
        return self._computation.experts

    @property
    def kv_bytes(self) -> int:
        """Bytes of the pages that this rank has."""
        return self._computation.kv_bytes

    def run(self, frame: Frame) -> Frame | StepResult:
        """Computes one step: the frame for the next stage or, from the last one, what was drawn, scored and summed.

        Of several ranks this is for rank 0. Neither output has timings. Raises ProtocolError for a frame that is not
        for this stage, before anything is allocated.
        """
        rows = self._passed(frame)
        if self._is_last:
            return _result(frame, rows)
        ids = (frame.ids or frame.tensor) if self._ids_go_on else None
        return dataclasses.replace(frame, tensor=rows.to_bytes(), timings=(), ids=ids)

    def follow(self, frame: Frame) -> None:
        """Does the part of the same step that another rank than 0 has; raises what `run` raises there."""
        rows = self._passed(frame)
        if self._is_last:
            rows.drawn(wanted_tokens(frame.spans))
            rows.scored(scored_rows(frame.spans))

    def _passed(self, frame: Frame) -> PassedRows:
        check_frame(frame, self._spec, self._model)
        return self._computation.passed(frame)


def _result(frame: Frame, rows: PassedRows) -> StepResult:
    """What was drawn, scored and summed. A sequence has failed if any of its rows is not numbers, even if no token is
    wanted yet: what was written to its pages must not be read by others.
    """
    wanted, known, summed = wanted_tokens(frame.spans), scored_rows(frame.spans), summed_rows(frame.spans)
    drawn = rows.drawn(wanted)
    scores, failed = span_scores(frame.spans, rows.scored(known))
    if len(drawn) < len(wanted):
        there = {(token.sequence, token.position) for token in drawn}
        failed |= {token.sequence for _, token in wanted if (token.sequence, token.position) not in there}
    if len(wanted) + len(known) < frame.rows:  # logits that are numbers came from rows that are
        failed |= _not_numbers(frame, rows)
    return StepResult(
        epoch=frame.epoch,
        step=frame.step,
        sampled=tuple(token for token in drawn if token.sequence not in failed),
        failed=tuple(sorted(failed)),
        scores=tuple(each for each in scores if each.sequence not in failed),
        sums=tuple(each for each in span_sums(frame.spans, rows.summed(summed)) if each.sequence not in failed),
    )


def _not_numbers(frame: Frame, rows: PassedRows) -> set[int]:
    """The sequences of which a row is not finite."""
    finite_T = rows.finite()
    if finite_T.all():
        return set()
    ends = np.cumsum([span.count for span in frame.spans])[:-1]
    of_spans = np.split(finite_T, ends)
    return {span.sequence for span, own in zip(frame.spans, of_spans, strict=True) if not own.all()}
