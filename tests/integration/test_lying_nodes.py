"""A node that answers nonsense, or never comes to an end, is left out by name and reason; the others are used."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from coordinator.node_client import NodeClient, seen_from_here
from layerline.errors import DeadlineError, ProtocolError
from layerline.facts import Holder
from layerline.frames import MAX_EPOCH, MAX_EPOCH_JUMP
from layerline.models.card import ModelCard
from layerline.plan_request import PlanRequest
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2
from tests.fakes.cases import cases
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, prepared, split
from tests.fakes.lying_node_service import Events, LyingNode
from tests.fakes.node_service import MODEL, nodes_of
from tests.fakes.peers import peer_at

SHORT_S = 0.3


def sends(card: ModelCard, **changes: object) -> Events:
    """A card with these fields changed."""
    fields = {**msgpack.unpackb(card.to_bytes()), **changes}
    return [node_pb2.OpenModelEvent(card_chunk=msgpack.packb(fields))]


def progress(*done_bytes: int) -> Events:
    """Progress that says these numbers again and again."""
    while True:
        for done in done_bytes:
            yield node_pb2.OpenModelEvent(progress=node_pb2.IndexProgress(done_bytes=done, total_bytes=10))


@pytest.mark.parametrize("changes", [{"digest": 5}, {"size_bytes": 6.5}, {"tensors": [5]}, {"tokenizer": None}])
async def test_a_node_with_a_card_that_is_none_is_left_out(card: ModelCard, changes: dict[str, object]) -> None:
    liar = LyingNode("liar", card)
    liar.events = sends(card, **changes)
    await liar.serve()
    async with nodes_of(card, "a") as nodes, coordinator_of([liar, *nodes]) as coordinator:
        plan = await coordinator.plan(PlanRequest(model="tiny"))
        assert {stage.node for stage in plan.stages} == {"a"}
        assert any("Node liar is left out: Node liar sent a card" in note for note in plan.notes)
    await liar.die()


async def test_where_every_card_is_nonsense_the_node_is_named(card: ModelCard) -> None:
    liar = LyingNode("liar", card)
    liar.events = sends(card, digest=5)
    await liar.serve()
    async with coordinator_of([liar]) as coordinator:
        with pytest.raises(ProtocolError, match=r"Node liar sent a card of model tiny.gguf .* digest is not a text"):
            await coordinator.plan(PlanRequest(model="tiny"))
    await liar.die()


@pytest.mark.parametrize(
    "addresses", [["garbage"], [f"10.0.0.{number}:1" for number in range(65)], ["10.0.0.1:0"], ["x" * 300]]
)
async def test_a_node_with_facts_that_are_none_is_left_out(card: ModelCard, addresses: list[str]) -> None:
    liar = LyingNode("liar", card)
    liar.change_facts = lambda facts: facts.addresses.extend(addresses)
    await liar.serve()
    async with nodes_of(card, "a") as nodes, coordinator_of([liar, *nodes]) as coordinator:
        plan = await coordinator.plan(PlanRequest(model="tiny"))
        assert {stage.node for stage in plan.stages} == {"a"}
        assert any(f"{liar.address} cannot be used" in note and "is not valid" in note for note in plan.notes)
    await liar.die()


async def test_addresses_of_others_that_a_node_names_are_left_out(card: ModelCard) -> None:
    liar = LyingNode("liar", card)
    liar.change_facts = lambda facts: facts.addresses.extend(["169.254.169.254:80", "db.internal:5432", "10.0.0.9:1"])
    await liar.serve()
    assert (await NodeClient(Transport()).describe(liar.address)).addresses == (liar.address, "10.0.0.9:1")
    await liar.die()


@pytest.mark.parametrize("numbers", [(1,), (1, 2), (9, 8, 7, 6), (0,)])
async def test_progress_that_does_not_grow_is_none(card: ModelCard, numbers: tuple[int, ...]) -> None:
    liar = LyingNode("liar", card)
    liar.events = progress(*numbers)
    await liar.serve()
    told: list[tuple[int, int]] = []
    with pytest.raises(DeadlineError, match=r"Node liar came no further with the files of model tiny.gguf for 0.3 s"):
        await NodeClient(Transport()).open_model(
            peer_at(liar.address, name="liar"), MODEL, lambda *each: told.append(each), no_growth_s=SHORT_S
        )
    assert told[0] == (numbers[0], 10)
    await liar.die()


async def test_progress_that_grows_may_take_long(card: ModelCard) -> None:
    node = LyingNode("slow", card)
    steps = [node_pb2.OpenModelEvent(progress=node_pb2.IndexProgress(done_bytes=n, total_bytes=30)) for n in range(30)]
    node.events = [*steps, *sends(card)]
    await node.serve()
    assert (
        await NodeClient(Transport()).open_model(
            peer_at(node.address, name="slow"), MODEL, lambda *_: None, no_growth_s=SHORT_S
        )
        == card
    )
    await node.die()


async def test_a_node_that_comes_no_further_is_left_out(card: ModelCard) -> None:
    bounds = replace(BOUNDS, no_growth_s=SHORT_S)
    liar = LyingNode("liar", card)
    liar.events = progress(1)
    await liar.serve()
    async with nodes_of(card, "a") as nodes, coordinator_of([liar, *nodes], bounds=bounds) as coordinator:
        plan = await coordinator.plan(PlanRequest(model="tiny"))
        assert any("Node liar is left out: Node liar came no further" in note for note in plan.notes)
    await liar.die()


@pytest.mark.parametrize(
    "epoch", cases([MAX_EPOCH - 1, MAX_EPOCH, 2**64 - 1, MAX_EPOCH_JUMP + 1], more=[MAX_EPOCH, 2**64 - 1])
)
async def test_a_node_that_has_seen_an_epoch_which_cannot_be_is_named(card: ModelCard, epoch: int) -> None:
    def lie(event: node_pb2.HoldEvent) -> None:
        if event.HasField("welcome"):
            event.welcome.last_epoch = epoch

    async with nodes_of(card, "a", "liar") as nodes, coordinator_of(nodes) as coordinator:
        nodes[1].change_event = lie
        with pytest.raises(ProtocolError, match=r"epoch") as raised:
            await prepared(coordinator, split("a", "liar"))
        assert raised.value.node == "liar"
        assert [node.epochs.epoch for node in nodes] == [0, 0]
        assert (await answer(coordinator, model="tiny", max_tokens=2)).text == "bc"


@pytest.mark.parametrize(
    ("told", "called"),
    [
        ("10.0.0.9:7355", "10.0.0.9:7355"),
        ("127.0.0.1:7355", "127.0.0.1:7355"),
        ("169.254.169.254:80", None),
        ("db.internal:5432", None),
        ("224.0.0.1:80", None),
    ],
)
async def test_a_holder_is_called_only_where_a_machine_may_be(card: ModelCard, told: str, called: str | None) -> None:
    def lie(facts: node_pb2.NodeFacts) -> None:
        facts.held_by.CopyFrom(
            node_pb2.Holder(coordinator="attic", address=told, instance="f" * 16, takes_requests=True)
        )

    liar = LyingNode("liar", card)
    liar.change_facts = lie
    await liar.serve()
    async with coordinator_of([liar]) as coordinator:
        assert (await coordinator.availability("")).coordinators == ((called,) if called else ())
    await liar.die()


def test_a_holder_on_the_machine_of_its_node_is_called_there() -> None:
    holder = Holder(coordinator="attic", address="127.0.0.1:7355", instance="f" * 16, takes_requests=True)
    for asked, called in (("10.0.0.2:7070", "10.0.0.2:7355"), ("[fe80::1%eth0]:7070", "[fe80::1%eth0]:7355")):
        seen = seen_from_here(holder, asked)
        assert seen is not None
        assert seen.address == called
