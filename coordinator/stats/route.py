"""The way of a step through a pipeline: its stages, its links, and the bytes that pass over these."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from layerline.answer import StageSummary
from layerline.models.row_layout import row_into
from layerline.models.spec import ModelSpec
from layerline.plan import DTYPE_BYTES, PipelinePlan
from layerline.step_result import StepResult

TOKEN_BYTES = 4
SCORE_BYTES = 4
COORDINATOR = "coordinator"


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The stages in order; a row that each but the last hands on has so many `row_bytes`."""

    model: str
    stages: tuple[StageSummary, ...]
    row_bytes: tuple[int, ...]

    @classmethod
    def of(cls, model: str, pipeline: PipelinePlan, spec: ModelSpec) -> Route:
        """The way through `pipeline`, for the model of that name."""
        stages = tuple(
            StageSummary(node=stage.node, first_layer=stage.spec.first_layer, last_layer=stage.spec.last_layer)
            for stage in pipeline.stages
        )
        number_bytes = DTYPE_BYTES[pipeline.stages[0].spec.dtype]
        rows = [row_into(spec, stage.first_layer) for stage in stages[1:]]
        id_bytes = [TOKEN_BYTES * row.needs_ids for row in rows]
        row_bytes = (row.numbers * number_bytes + ids for row, ids in zip(rows, id_bytes, strict=True))
        return cls(model=model, stages=stages, row_bytes=tuple(row_bytes))

    @property
    def ends(self) -> tuple[tuple[str, str], ...]:
        """Sender and receiver of each link."""
        names = (COORDINATOR, *(stage.node for stage in self.stages), COORDINATOR)
        return tuple(itertools.pairwise(names))

    def link_bytes(self, rows: int, result: StepResult) -> tuple[int, ...]:
        """The bytes that a step of that many rows has on each link, from the first to the last."""
        returned = sum(TOKEN_BYTES + (len(token.logits.data) if token.logits else 0) for token in result.sampled)
        returned += sum(SCORE_BYTES * len(scores.log_probabilities) for scores in result.scores)
        between = (rows * row_bytes for row_bytes in self.row_bytes)
        return (rows * TOKEN_BYTES, *between, returned)
