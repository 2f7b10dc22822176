"""What clients get of a coordinator over healthy nodes before any answer: plans, progress, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coordinator.coordinator import Coordinator
from coordinator.discovery.browser import Browser
from coordinator.settings import CoordinatorSettings
from layerline.errors import (
    ModelMismatchError,
    ModelNotFoundError,
    NoNodesError,
    PlanInvalidError,
    RequestError,
    UsageError,
)
from layerline.models.card import ModelCard
from layerline.plan_request import ManualStage, PlanRequest
from layerline.reports import Announcement, NodeProgress, Planned, Ready
from layerline.rpc.transport import Transport
from tests.fakes.coordinators import answer, events_of, prepared, settings_for, split, two_nodes
from tests.fakes.model_files import TinyModel
from tests.fakes.node_service import MODEL, nodes_of, tiny_card

# --- what is told


async def test_what_is_told_on_the_way_to_ready(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        events = await events_of(coordinator, split("a", "b"))
    assert events[0] == Announcement(text="Looking for nodes.")
    progress = [event for event in events if isinstance(event, NodeProgress)]
    assert {(event.node, event.phase) for event in progress} == {(n, p) for n in "ab" for p in ("index", "load")}
    (planned,) = (event for event in events if isinstance(event, Planned))
    assert planned.plan.pipelines[0].epoch == 0
    assert isinstance(events[-1], Ready)
    assert events[-1].plan.pipelines[0].epoch == 1
    assert [(stage.node, stage.first_layer, stage.last_layer) for stage in events[-1].plan.stages] == [
        ("a", 0, 2),
        ("b", 3, 5),
    ]


async def test_facts_nodes_and_models(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        assert (coordinator.facts().model, coordinator.facts().name) == ("", "test")
        assert not (await coordinator.models()).models[0].loaded
        await prepared(coordinator, split("a", "b"))
        assert coordinator.facts().model == MODEL
        (model,) = (await coordinator.models()).models
        assert (model.name, model.nodes, model.loaded) == (MODEL, ("a", "b"), True)
        report = await coordinator.nodes()
        assert [(node.name, node.unusable) for node in report.nodes] == [("a", ""), ("b", "")]
        assert [node.facts.held_by.coordinator for node in report.nodes if node.facts and node.facts.held_by] == [
            "test",
            "test",
        ]
        assert report.searched == tuple(node.address for node in nodes)


async def test_a_plan_loads_nothing_and_is_the_one_in_effect_once_there_is_one(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        planned = await coordinator.plan(split("a", "b"))
        assert planned.pipelines[0].epoch == 0
        assert [node.loads for node in nodes] == [0, 0]
        await prepared(coordinator, split("a", "b"))
        assert (await coordinator.plan(PlanRequest(model="tiny"))).pipelines[0].epoch == 1
        assert (await coordinator.plan(PlanRequest(model="tiny", dtype="float32"))).pipelines[0].epoch == 0


async def test_a_model_in_service_is_ready_at_once_for_whoever_asks_for_it(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        await prepared(coordinator, split("a", "b"))
        by_id = tuple(
            ManualStage(node=node, first_layer=first, last_layer=first + 2) for node, first in (("a", 0), ("id-b", 3))
        )
        for request in (
            PlanRequest(model="tiny"),
            PlanRequest(model=f"/x/{MODEL}"),
            PlanRequest(model=MODEL, layers=by_id),
        ):
            (ready,) = await events_of(coordinator, request)
            assert isinstance(ready, Ready)
        assert [node.loads for node in nodes] == [1, 1]


@pytest.mark.parametrize(
    "other",
    [
        PlanRequest(model="tiny", dtype="float32"),
        PlanRequest(model="other"),
        PlanRequest(model="tiny", context_tokens=9999),
        split("b", "a"),
        split("a"),
    ],
)
async def test_something_else_is_refused_while_a_model_is_in_service(card: ModelCard, other: PlanRequest) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        with pytest.raises(RequestError, match=r"serves tiny\.gguf in bfloat16.*\(a=0-2, b=3-5\)"):
            await prepared(coordinator, other)
        assert (await answer(coordinator, max_tokens=2)).text == "bc"


async def test_the_same_weights_under_two_names_are_the_same_model(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        for node in nodes:
            node.listed = ("m1.gguf", "m2.gguf")
        for name in ("m1.gguf", "m2.gguf", "m1", "m2"):
            assert (await prepared(coordinator, PlanRequest(model=name))).model == "m1.gguf"
            assert (await answer(coordinator, model=name, max_tokens=2)).text == "bc"
            assert (await coordinator.plan(PlanRequest(model=name))).pipelines[0].epoch == 1
        assert [(model.name, model.loaded) for model in (await coordinator.models()).models] == [
            ("m1.gguf", True),
            ("m2.gguf", True),
        ]
        assert sum(node.loads for node in nodes) == 1


async def test_a_name_that_was_never_indexed_is_told_by_its_weights(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        for node in nodes:
            node.listed, node.indexed = ("m1.gguf", "m2.gguf"), {"m1.gguf"}
        await prepared(coordinator, PlanRequest(model="m1"))
        assert (await answer(coordinator, model="m2", max_tokens=2)).text == "bc"
        assert sum(node.loads for node in nodes) == 1


async def test_a_model_that_was_given_up_comes_back_by_any_of_its_names(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        for node in nodes:
            node.listed = ("m1.gguf", "m2.gguf")
        await prepared(coordinator, split("a", "b", model="m1"))
        assert coordinator._service is not None
        await coordinator._service.leave()
        assert (await answer(coordinator, model="m2", max_tokens=2)).text == "bc"
        assert [node.loads for node in nodes] == [1, 1]


# --- what cannot be


async def test_a_model_that_nobody_has(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        with pytest.raises(ModelNotFoundError, match=r"They have tiny\.gguf") as raised:
            await prepared(coordinator, PlanRequest(model="tini"))
        assert "a: /models, b: /models" in raised.value.message
        with pytest.raises(ModelNotFoundError):
            await answer(coordinator, model="tini")


@pytest.mark.parametrize("reference", ["x" * 256, "x/" * 100, "/", "..", "\u00e9" * 200])
async def test_a_reference_that_can_be_no_file_is_a_model_that_nobody_has(card: ModelCard, reference: str) -> None:
    async with two_nodes(card) as (coordinator, _):
        with pytest.raises(ModelNotFoundError):
            await prepared(coordinator, PlanRequest(model=reference))


async def test_files_that_differ_are_told_apart_by_the_tensor(card: ModelCard, tmp_path: Path) -> None:
    name = "blk.3.ffn_up.weight"
    changed = np.full((96, 64), 0.5, dtype=np.float32)
    async with two_nodes(card) as (coordinator, nodes):
        nodes[1].card = tiny_card(tmp_path, tensors={name: changed})
        with pytest.raises(ModelMismatchError, match=name) as raised:
            await prepared(coordinator, split("a", "b"))
        assert "node a and node b have unlike files" in raised.value.message
        assert len((await coordinator.models()).models) == 2


async def test_a_path_of_this_machine_must_be_the_same_file(
    card: ModelCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "same").mkdir()
    (tmp_path / "other").mkdir()
    tiny_card(tmp_path / "same")
    tiny_card(tmp_path / "other", TinyModel(layers=6, seed=1))
    async with two_nodes(card) as (coordinator, _):
        with pytest.raises(ModelMismatchError, match="this machine and node a"):
            await prepared(coordinator, PlanRequest(model=str(tmp_path / "other" / MODEL)))
        assert (await prepared(coordinator, PlanRequest(model=str(tmp_path / "same" / MODEL)))).model == MODEL


async def test_a_plan_by_hand_that_cannot_be(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        with pytest.raises(PlanInvalidError, match="'z'"):
            await prepared(coordinator, split("a", "z"))
        assert [node.loads for node in nodes] == [0, 0]


async def test_nobody_to_ask(card: ModelCard) -> None:
    async with nodes_of(card, "a") as nodes:
        settings = settings_for(nodes)
    async with Coordinator(settings, Transport(), address="here:1") as coordinator:
        with pytest.raises(NoNodesError, match=nodes[0].address):
            await prepared(coordinator, PlanRequest(model="tiny"))
        (node,) = (await coordinator.nodes()).nodes
        assert "does not answer" in node.unusable


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 257])
def test_a_name_that_cannot_be_told_is_refused_at_once(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        CoordinatorSettings(name=name)


async def test_a_bad_address_leaves_no_search_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    class Counted(Browser):
        async def __aenter__(self) -> Counted:
            left.append("in")
            return self

        async def __aexit__(self, *failure: object) -> None:
            left.append("out")

    monkeypatch.setattr("coordinator.coordinator.Browser", Counted)
    with pytest.raises(UsageError, match="--node"):
        async with Coordinator(CoordinatorSettings(nodes=("nonsense",)), Transport(), address="here:1"):
            pass
    assert left == ["in", "out"]
