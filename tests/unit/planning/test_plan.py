"""What a plan refuses to be: stages that do not make up the model, or that could not share pages."""

from __future__ import annotations

import pytest

from layerline.plan import PipelinePlan, Plan, StagePlan, StageSpec


def stage(first_layer: int, last_layer: int, *, pages: int = 8, max_rows: int = 64) -> StagePlan:
    spec = StageSpec(
        model="tiny",
        digest="d1",
        first_layer=first_layer,
        last_layer=last_layer,
        dtype="float32",
        devices=("cpu",),
        pages=pages,
        page_tokens=16,
        max_rows=max_rows,
    )
    return StagePlan(
        node_id="id-a", node="a", spec=spec, weights_bytes=1, kv_bytes=1, workspace_bytes=1, budget_bytes=9
    )


def plan(*pipelines: PipelinePlan, layers: int = 6) -> Plan:
    return Plan(
        model="tiny",
        digest="d1",
        dtype="float32",
        kv_dtype="float32",
        weights="float32",
        layers=layers,
        context_tokens=128,
        pipelines=pipelines,
    )


def test_every_pipeline_has_the_whole_model_and_sizes_of_its_own() -> None:
    split = PipelinePlan(stages=(stage(0, 2), stage(3, 5)), epoch=4)
    whole = PipelinePlan(stages=(stage(0, 5, pages=32),))
    made = plan(split, whole)
    assert [pipeline.layers for pipeline in made.pipelines] == [6, 6]
    assert (split.pages, split.page_tokens, split.max_rows, split.epoch) == (8, 16, 64, 4)
    assert (whole.pages, whole.epoch) == (32, 0)
    assert made.stages == (*split.stages, *whole.stages)


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ((), "needs stages"),
        ((stage(1, 5),), "do not follow each other"),
        ((stage(0, 2), stage(4, 5)), "do not follow each other"),
        ((stage(0, 2), stage(3, 5, pages=9)), "unlike in pages or rows"),
        ((stage(0, 2), stage(3, 5, max_rows=65)), "unlike in pages or rows"),
    ],
)
def test_stages_that_are_no_pipeline_are_refused(stages: tuple[StagePlan, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PipelinePlan(stages=stages)


def test_a_plan_needs_a_pipeline_and_each_must_cover_the_model() -> None:
    with pytest.raises(ValueError, match="needs a pipeline"):
        plan()
    with pytest.raises(ValueError, match="do not cover the model"):
        plan(PipelinePlan(stages=(stage(0, 5),)), PipelinePlan(stages=(stage(0, 4),)))
