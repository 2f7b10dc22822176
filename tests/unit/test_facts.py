"""What a node says of itself is checked before anything is planned with it."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coordinator.discovery.cluster import Answered, Cluster, Lead, Seen, Told, apply
from coordinator.discovery.members import members
from coordinator.planning.adoption import adopt
from coordinator.planning.planner import make_plan
from layerline.cli.render.tables import nodes_table
from layerline.errors import PlanError, ProtocolError, UsageError
from layerline.facts import DeviceFacts, ModelListing, NodeFacts
from layerline.plan_request import PlanRequest
from layerline.reports import NodesReport
from layerline.rpc.convert import from_message, to_message
from layerline.rpc.v1 import coordinator_pb2, node_pb2
from layerline.sharing import MAX_DEVICES
from layerline.version import WIRE_VERSION
from tests.fakes.worlds import model_spec, problem


def device(name: str, **speeds: Any) -> DeviceFacts:
    return DeviceFacts(device=name, kind="cuda", name="GPU", total_bytes=4, free_bytes=3, budget_bytes=2, **speeds)


def node(*devices: DeviceFacts) -> NodeFacts:
    return NodeFacts(node_id="1", name="a", version="0", wire_version=1, state="ready", devices=devices)


def test_a_device_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice"):
        node(device("cuda:0"), device("cuda:0"))


def test_more_devices_than_a_stage_may_span_are_refused() -> None:
    assert len(node(*(device(f"cuda:{place}") for place in range(MAX_DEVICES))).devices) == MAX_DEVICES
    with pytest.raises(ValueError, match="more than 64"):
        node(*(device(f"cuda:{place}") for place in range(MAX_DEVICES + 1)))


@pytest.mark.parametrize("speed", [-1.0, 1e-300, 0.5, 1e18, float("inf"), float("nan")])
def test_a_speed_that_cannot_be_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="no sensible number"):
        device("cuda:0", memory_bytes_per_s=speed)
    with pytest.raises(ValueError, match="no sensible number"):
        device("cuda:0", matrix_flops_per_s=speed)


def facts(**changes: Any) -> NodeFacts:
    fields: dict[str, Any] = {"node_id": "1", "name": "a", "version": "0", "wire_version": 1, "state": "ready"}
    return NodeFacts(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"addresses": ("garbage",)}, "'garbage' is not of the form HOST:PORT"),
        ({"addresses": ("unix:/run/docker.sock",)}, "no port number"),
        ({"addresses": tuple(f"10.0.0.{n}:1" for n in range(65))}, "more than 64 addresses"),
        ({"version": "x" * 5_000}, "version is longer"),
        ({"models_folder": "x" * 5_000}, "models folder is longer"),
        ({"models": tuple(ModelListing(name="m", size_bytes=1) for _ in range(5_000))}, "more than 4096 models"),
    ],
)
def test_facts_that_cannot_be_used_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        facts(**changes)


@pytest.mark.parametrize("size", [-1, 1 << 56, 2**64 - 1])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="no sensible number"):
        ModelListing(name="m", size_bytes=size)
    with pytest.raises(ValueError, match="no sensible number"):
        DeviceFacts(device="cpu", kind="cpu", name="CPU", total_bytes=4, free_bytes=3, budget_bytes=size)


WORDS = st.one_of(st.text(max_size=20), st.sampled_from(["garbage", "10.0.0.1:1", "unix:/x", "cpu", "cuda:0", "ready"]))
NUMBERS = st.one_of(st.integers(0, 100), st.sampled_from([2**31, 2**32 - 1]))
LARGE = st.one_of(NUMBERS, st.integers(0, 2**64 - 1))
REALS = st.floats()


@st.composite
def messages(draw: st.DrawFn) -> node_pb2.NodeFacts:
    """Any message that there may be: protobuf holds the types, and nothing else."""
    spec = node_pb2.StageSpec(
        model=draw(WORDS),
        digest=draw(WORDS),
        first_layer=draw(NUMBERS),
        last_layer=draw(NUMBERS),
        dtype=draw(st.sampled_from(["bfloat16", "float32", "", "x"])),
        devices=draw(st.lists(WORDS, max_size=3)),
        pages=draw(NUMBERS),
        page_tokens=draw(NUMBERS),
        max_rows=draw(NUMBERS),
    )
    device = node_pb2.DeviceFacts(
        device=draw(WORDS),
        kind=draw(st.sampled_from(["cpu", "cuda", "x"])),
        name=draw(WORDS),
        threads=draw(NUMBERS),
        total_bytes=draw(LARGE),
        free_bytes=draw(LARGE),
        budget_bytes=draw(LARGE),
        matrix_flops_per_s=draw(REALS),
        memory_bytes_per_s=draw(REALS),
    )
    return node_pb2.NodeFacts(
        node_id=draw(WORDS),
        name=draw(WORDS),
        version=draw(WORDS),
        wire_version=draw(st.sampled_from([0, WIRE_VERSION, 2**32 - 1])),
        state=draw(st.sampled_from(["ready", "ready", "starting", "x"])),
        addresses=draw(st.lists(WORDS, max_size=2)),
        devices=[device] if draw(st.booleans()) else [],
        models=[node_pb2.ModelListing(name=draw(WORDS), digest=draw(WORDS), size_bytes=draw(LARGE))],
        loaded=[node_pb2.LoadedStage(spec=spec, weights_bytes=draw(LARGE))] if draw(st.booleans()) else [],
        held_by=node_pb2.Holder(coordinator=draw(WORDS), address=draw(WORDS)) if draw(st.booleans()) else None,
        last_epoch=draw(LARGE),
        models_folder=draw(WORDS),
        all_reduce_us=draw(REALS),
    )


@given(message=messages())
def test_whatever_a_node_says_of_itself_it_is_refused_or_can_be_planned_with(message: node_pb2.NodeFacts) -> None:
    try:
        said = from_message(NodeFacts, message)
    except ProtocolError:
        return
    lead = Lead.by_hand("10.0.0.1:1")
    answered = Told(key=lead.key, outcome=Answered(address="10.0.0.1:1", facts=said), at_s=1.0)
    (member,) = members(apply(Cluster(), Seen(lead=lead), answered), since_s=0.0, instance="desk/1")
    to_message(NodesReport(nodes=(member.report,), searched=()), coordinator_pb2.NodesReport)
    Console(file=io.StringIO()).print(nodes_table(NodesReport(nodes=(member.report,), searched=())))
    with contextlib.suppress(PlanError, UsageError):
        make_plan(problem(model_spec(), PlanRequest(model="m"), (said,)))
    with contextlib.suppress(PlanError, UsageError):
        adopt(problem(model_spec(), PlanRequest(model="m"), (said,)))
