"""Plans by hand: what is obeyed, and every way in which one can be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.planning.planner import make_plan
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import NodeFacts
from layerline.layers_option import parse_layers
from layerline.plan import Plan
from layerline.plan_request import ManualStage, PlanRequest
from tests.fakes.worlds import MIB, device, layers_by_node, model_spec, node, problem

NODES = (node("kitchen"), node("desk.lan"), node("pi-4", mib=200))


def by_hand(layers: str | tuple[ManualStage, ...], *nodes: NodeFacts, **request: Any) -> Plan:
    stages = parse_layers(layers) if isinstance(layers, str) else layers
    asked = PlanRequest(model="m", layers=stages, **request)
    return make_plan(problem(model_spec(), asked, nodes or NODES))


def test_a_plan_by_hand_is_obeyed_though_the_model_fits_one_node() -> None:
    made = by_hand("desk.lan=0-3,kitchen=4-29")
    assert layers_by_node(made) == [("desk.lan", 0, 3), ("kitchen", 4, 29)]
    assert {stage.why for stage in made.stages} == {"as --layers says"}


def test_one_node_may_have_it_all() -> None:
    assert layers_by_node(by_hand("kitchen=0-29")) == [("kitchen", 0, 29)]


def test_nodes_are_named_by_id_too() -> None:
    assert layers_by_node(by_hand("id-kitchen=0-9,id-desk.lan=10-29")) == [("kitchen", 0, 9), ("desk.lan", 10, 29)]


def test_a_name_that_two_nodes_have_must_be_given_as_id() -> None:
    twins = (node("pi", node_id="id-1"), node("pi", node_id="id-2"))
    with pytest.raises(PlanInvalidError, match="2 nodes are called") as refused:
        by_hand("pi=0-29", *twins)
    assert "id-1, id-2" in refused.value.remedy
    assert by_hand("id-2=0-29", *twins).stages[0].node_id == "id-2"


def test_the_context_is_shortened_for_a_plan_by_hand_too() -> None:
    made = by_hand("pi-4=0-9,kitchen=10-29")
    assert made.context_tokens == 4096
    assert any("4096 tokens instead of 8192" in note for note in made.notes)


@pytest.mark.parametrize(
    ("layers", "message", "remedy"),
    [
        ("kitchen=0-3,desk.lan=5-29", "gives layer 4 to no node", "every layer"),
        ("kitchen=2-3,desk.lan=4-29", "gives layers 0-1 to no node", "every layer"),
        ("kitchen=0-3,desk.lan=4-20", "gives layers 21-29 to no node", "every layer"),
        ("kitchen=0-14,desk.lan=10-29", "gives layers 10-14 to both kitchen and desk.lan", "one node"),
        ("kitchen=0-29,desk.lan=4-4", "gives layer 4 to both kitchen and desk.lan", "one node"),
        ("kitchen=15-29,desk.lan=0-14", "out of order", "--layers desk.lan=0-14,kitchen=15-29"),
        ("kitchen=0-14,desk.lan=15-30", "desk.lan layers 15-30, but the model's last layer is 29", "0 to 29"),
        ("kitchen=0-14,desk.lan=15-20,kitchen=21-29", "kitchen two groups, 0-14 and 21-29", "one group"),
        ("kitchen=0-14,id-kitchen=15-29", "kitchen two groups, 0-14 and 15-29", "one group"),
        ("kitchn=0-14,desk.lan=15-29", "layers 0-14 to 'kitchn'", "Did you mean 'kitchen'?"),
        ("xyz=0-14,desk.lan=15-29", "layers 0-14 to 'xyz'", "kitchen, desk.lan, pi-4|desk.lan, kitchen, pi-4"),
    ],
)
def test_what_is_wrong_is_said_with_the_layers_it_is_about(layers: str, message: str, remedy: str) -> None:
    with pytest.raises(PlanInvalidError) as refused:
        by_hand(layers)
    assert message in refused.value.message
    assert any(part in refused.value.remedy for part in remedy.split("|"))


def test_ranges_that_the_option_would_refuse_are_refused_from_the_wire_too() -> None:
    with pytest.raises(ValueError, match="must be from a first layer to a last one"):
        by_hand((ManualStage(node="kitchen", first_layer=9, last_layer=3),))


def test_layers_that_do_not_fit_their_node_are_refused_with_numbers() -> None:
    with pytest.raises(PlanDoesNotFitError) as refused:
        by_hand("pi-4=0-24,kitchen=25-29")
    assert "layers 0-24 need" in refused.value.message
    assert "pi-4 offers 200 MiB" in refused.value.message
    assert "kitchen offers" not in refused.value.message
    assert "fewer layers" in refused.value.remedy


def test_the_context_asked_for_is_not_shortened() -> None:
    with pytest.raises(PlanDoesNotFitError, match="context of 8192 tokens"):
        by_hand("pi-4=0-9,kitchen=10-29", context_tokens=8192)


def test_the_fastest_device_that_holds_the_layers_is_taken() -> None:
    gpu = device("cuda:0", budget_bytes=150 * MIB, gb_per_s=900)
    nodes = (node("a", device(), gpu), node("b"))
    assert by_hand("a=0-1,b=2-29", *nodes).stages[0].spec.devices == ("cuda:0",)
    assert by_hand("a=0-27,b=28-29", *nodes).stages[0].spec.devices == ("cpu",)


def test_a_node_that_is_not_ready_cannot_be_given_layers() -> None:
    with pytest.raises(PlanInvalidError, match="'kitchen' is draining"):
        by_hand("kitchen=0-29", node("kitchen", state="draining"))
