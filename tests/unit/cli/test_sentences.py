"""Plans as lines of plain text."""

from __future__ import annotations

from dataclasses import replace

from layerline.cli.render.sentences import plan_lines
from tests.fakes.coordinator_service import PLAN


def test_a_stage_of_one_layer_is_told_as_one() -> None:
    (pipeline,) = PLAN.pipelines
    first, last = pipeline.stages
    stages = (replace(first, last_layer=0), replace(last, first_layer=1))
    _, one, more = plan_lines(replace(PLAN, pipelines=(replace(pipeline, stages=stages),)))
    assert one == "  attic   layer 0 on cpu, 704 MiB of 1.0 GiB"
    assert more == "  cellar  layers 1-29 on cpu, 704 MiB of 1.0 GiB"
