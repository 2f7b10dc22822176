"""A coordinator that was started for one model brings up no other, whoever asks first."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.coordinator import Coordinator
from layerline.errors import RequestError
from layerline.plan_request import PlanRequest
from layerline.rpc.transport import Transport
from tests.fakes.coordinators import answer, events_of, prepared, settings_for, split
from tests.fakes.node_service import nodes_of, tiny_card

WANTED = split("a", "b")


async def test_clients_get_what_the_operator_wants_or_nothing(tmp_path: Path) -> None:
    async with (
        nodes_of(tiny_card(tmp_path), "a", "b") as nodes,
        Coordinator(settings_for(nodes), Transport(), address="here:1", wanted=WANTED) as coordinator,
    ):
        with pytest.raises(RequestError, match="This coordinator serves tiny"):
            await events_of(coordinator, split("b", "a"))
        plan = await prepared(coordinator, PlanRequest(model="tiny"))
        assert [stage.node for stage in plan.stages] == ["a", "b"]
        assert [node.loads for node in nodes] == [1, 1]


async def test_a_request_brings_up_what_the_operator_wants(tmp_path: Path) -> None:
    async with (
        nodes_of(tiny_card(tmp_path), "a", "b") as nodes,
        Coordinator(settings_for(nodes), Transport(), address="here:1", wanted=WANTED) as coordinator,
    ):
        assert (await answer(coordinator, max_tokens=2)).text == "bc"
        with pytest.raises(RequestError, match="This coordinator serves tiny"):
            await answer(coordinator, model="another", max_tokens=2)
        plan = await coordinator.plan(PlanRequest(model="tiny"))
        assert [stage.node for stage in plan.stages] == ["a", "b"]


async def test_who_does_not_say_gets_the_dtype_that_the_operator_wants(tmp_path: Path) -> None:
    wanted = PlanRequest(model="tiny", dtype="float32")
    async with (
        nodes_of(tiny_card(tmp_path), "a") as nodes,
        Coordinator(settings_for(nodes), Transport(), address="here:1", wanted=wanted) as coordinator,
    ):
        for _ in range(2):
            assert (await prepared(coordinator, PlanRequest(model="tiny"))).dtype == "float32"
        with pytest.raises(RequestError, match="in float32"):
            await prepared(coordinator, PlanRequest(model="tiny", dtype="bfloat16"))
