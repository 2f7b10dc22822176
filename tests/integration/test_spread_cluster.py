"""A real node that spreads experts over two parts of its CPU: its answers, its counts, and moves while it serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from coordinator.coordinator import Coordinator
from coordinator.settings import CoordinatorSettings
from layerline.errors import PlanInvalidError
from layerline.plan_request import PlanRequest
from layerline.rpc.transport import Transport
from layerline.stats_report import ExpertStats
from tests.fakes.coordinators import answer, prepared
from tests.fakes.family_models import FAMILIES
from tests.fakes.made_models import write_family, write_family_gguf
from tests.fakes.real_node import RealNode, real_node

pytestmark = pytest.mark.system

DEADLINE_S = 120.0
CHOSEN = 3
TOLD_S = 2.0  # after the last step all rows are told
PROMPTS = ("hello", "hell w", "a longer prompt, of several words", "another")
SPREAD = PlanRequest(model="tiny", dtype="float32", experts="spread")
ALONE = PlanRequest(model="tiny", dtype="float32", tensor_parallel=1)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RealNode]:
    """It has a model whose rows all choose expert 0."""
    model = FAMILIES["glm4_moe in one group"]
    folder = write_family(tmp_path / "folder", model)
    tensors = load_file(folder / "model.safetensors")
    biases = [name for name in tensors if name.endswith("e_score_correction_bias")]
    assert biases
    save_file(
        {**tensors, **dict.fromkeys(biases, np.eye(1, 8, dtype=np.float32)[0] * 50)}, folder / "model.safetensors"
    )
    home = tmp_path / "a"
    (home / "models").mkdir(parents=True)
    write_family_gguf(home / "models" / "tiny.gguf", folder, model)
    async with asyncio.timeout(DEADLINE_S), real_node(home, "a", "cpu:1,cpu:1") as started:
        yield started


def coordinator(node: RealNode) -> Coordinator:
    settings = CoordinatorSettings(name="test", nodes=(node.address,), mdns=False)
    return Coordinator(settings, Transport(), address="here:1")


def experts_of(serving: Coordinator) -> ExpertStats:
    report = serving.stats()
    assert report is not None
    (stats,) = report.experts
    return stats


async def test_experts_are_spread_counted_and_moved_while_answers_go_on(node: RealNode) -> None:
    async with coordinator(node) as serving:
        await prepared(serving, ALONE)
        alone = [(await answer(serving, prompt, max_tokens=24)).text for prompt in PROMPTS]
    async with coordinator(node) as serving:
        plan = await prepared(serving, SPREAD)
        (stage,) = plan.pipelines[0].stages
        assert (stage.experts, len(stage.devices)) == ("spread", 2)
        assert "experts spread, as --experts says" in stage.why
        rows = 0
        while not (rows and experts_of(serving).moves):
            for prompt, text in zip(PROMPTS, alone, strict=True):
                found = await answer(serving, prompt, max_tokens=24)
                assert found.text == text
                usage = found.finished.usage
                rows += usage.prompt_tokens - usage.cached_tokens + usage.completion_tokens - 1
        await asyncio.sleep(TOLD_S)
        for layer in experts_of(serving).layers:
            assert sum(layer.rows) == CHOSEN * rows
            assert layer.rows[0] == rows
        assert [(await answer(serving, prompt, max_tokens=24)).text for prompt in PROMPTS] == alone


async def test_what_cannot_be_asked_for_is_refused_by_name(node: RealNode) -> None:
    async with coordinator(node) as serving:
        with pytest.raises(PlanInvalidError, match="--expert-device cpu needs a node that offers a GPU and a CPU"):
            await serving.plan(PlanRequest(model="tiny", expert_device="cpu"))
