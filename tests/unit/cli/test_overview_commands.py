"""`layerline nodes` and `layerline plan` against a coordinator on loopback."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from layerline.cli.main import program
from layerline.errors import PlanDoesNotFitError
from layerline.reports import NodesReport, PipelineReport
from tests.fakes.coordinator_service import NODES, PLAN, FakeCoordinator, serving


@pytest.fixture
def fake() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.fixture
def address(fake: FakeCoordinator) -> Iterator[str]:
    with serving(fake) as address:
        yield address


def run(address: str, *arguments: str) -> Result:
    return CliRunner().invoke(program, [*arguments, "--coordinator", address])


def test_nodes_are_a_table_with_the_reason_for_each_that_cannot_be_used(address: str) -> None:
    result = run(address, "nodes")
    assert result.exit_code == 0
    head, _, attic, shed, *rest = [line.rstrip() for line in result.stdout.splitlines()]
    assert head.split() == ["NAME", "ID", "ADDRESSES", "DEVICES", "VERSION", "STATE"]
    assert "cpu: A CPU, 4 threads, no kernels, 6.0 GiB of 16.0 GiB, 0.25 TFLOP/s, 21 GB/s" in attic
    assert attic.split()[:3] == ["attic", "id-attic", "10.0.0.5:7355"]
    assert shed.startswith("[red]shed")
    assert shed.endswith("cannot be used: it answers at none of its addresses")
    assert rest == []


def test_nodes_as_json_have_everything(address: str) -> None:
    nodes = json.loads(run(address, "nodes", "--json").stdout)
    attic, shed = nodes["nodes"]
    assert nodes["searched"] == ["eth0 (10.0.0.1)"]
    assert (attic["name"], attic["id"], attic["state"], attic["unusable"]) == ("attic", "id-attic", "ready", "")
    assert attic["devices"][0]["budget_bytes"] == 6 << 30
    assert attic["addresses"] == ["10.0.0.5:7355"]
    assert shed["unusable"] == "it answers at none of its addresses"


def test_how_long_the_devices_of_a_node_take_together_is_told_where_it_was_measured(
    address: str, fake: FakeCoordinator
) -> None:
    attic, shed = NODES.nodes
    assert attic.facts is not None
    assert "all-reduce" not in run(address, "nodes").stdout
    measured = dataclasses.replace(attic.facts, all_reduce_us=45.0)
    fake.nodes = dataclasses.replace(NODES, nodes=(dataclasses.replace(attic, facts=measured), shed))
    assert "all-reduce between them 0.045 ms" in run(address, "nodes").stdout
    assert json.loads(run(address, "nodes", "--json").stdout)["nodes"][0]["all_reduce_us"] == 45.0


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_no_node_says_what_was_looked_for_and_how_to_start_one(
    address: str, fake: FakeCoordinator, json_option: list[str]
) -> None:
    fake.nodes = NodesReport(nodes=(), searched=("eth0 (10.0.0.1)", "lo (127.0.0.1)"))
    result = run(address, "nodes", *json_option)
    assert result.exit_code == 3
    assert "on eth0 (10.0.0.1), lo (127.0.0.1)" in result.stderr
    assert "layerline node" in result.stderr
    assert bool(result.stdout) == bool(json_option)


def test_a_plan_is_a_table_with_memory_and_reasons(address: str) -> None:
    result = run(address, "plan", "tiny")
    assert result.exit_code == 0
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "tiny: 30 layers in bfloat16, context 2048 tokens, on 2 nodes"
    (attic,) = [line for line in lines if line.startswith("attic")]
    sizes = ["512", "MiB", "128", "MiB", "64.0", "MiB", "704", "MiB", "1.0", "GiB"]
    assert attic.split() == ["attic", "0-14", "cpu", *sizes, "as", "many", "layers", "as", "fit"]
    assert lines[-1] == "shed was left out: it would only slow this down"


def test_a_plan_tells_what_keys_and_values_are_held_in_if_it_is_not_what_weights_are(
    address: str, fake: FakeCoordinator
) -> None:
    fake.plan = dataclasses.replace(PLAN, kv_dtype="int8")
    assert run(address, "plan", "tiny").stdout.startswith("tiny: 30 layers in bfloat16, KV in int8, context")


def test_a_plan_tells_what_each_device_takes_if_it_is_not_the_same(address: str, fake: FakeCoordinator) -> None:
    attic, cellar = PLAN.stages
    split = dataclasses.replace(attic, devices=("cuda:0", "cuda:1"), proportions=(1000, 500))
    stages = (split, dataclasses.replace(cellar, devices=("cpu:0", "cpu:1")))
    fake.plan = dataclasses.replace(PLAN, pipelines=(PipelineReport(stages=stages),))
    result = run(address, "plan", "tiny", "--tensor-parallel", "2")
    assert fake.planned[0].tensor_parallel == 2
    assert "cuda:0 67%, cuda:1 33%" in result.stdout
    assert "cpu:0, cpu:1 " in result.stdout
    (pipeline,) = json.loads(run(address, "plan", "tiny", "--json").stdout)["pipelines"]
    shares = [stage["proportions"] for stage in pipeline["stages"]]
    assert shares == [[1000, 500], []]


def test_a_plan_as_json_has_bytes(address: str) -> None:
    plan = json.loads(run(address, "plan", "tiny", "--json").stdout)
    assert plan["pipelines"][0]["stages"][1]["weights_bytes"] == 1 << 29
    assert (plan["model"], plan["layers"], plan["notes"][0][:4]) == ("tiny", 30, "shed")


def test_a_plan_says_at_once_whom_it_waits_for(address: str, fake: FakeCoordinator) -> None:
    (ready, _) = NODES.nodes
    assert ready.facts is not None
    starting = dataclasses.replace(ready, facts=dataclasses.replace(ready.facts, name="attic", state="starting"))
    fake.nodes = dataclasses.replace(NODES, nodes=(starting,))
    result = run(address, "plan", "tiny", "--json")
    assert result.stderr == "Waiting for attic, which still measures its devices.\n"
    assert json.loads(result.stdout)["model"] == "tiny"


def test_a_plan_that_does_not_fit_is_exit_code_5(address: str, fake: FakeCoordinator) -> None:
    fake.plan = PlanDoesNotFitError("It needs 9 GiB.", remedy="Add a node.")
    result = run(address, "plan", "tiny")
    assert (result.exit_code, result.stderr) == (5, "layerline: error: It needs 9 GiB. Add a node.\n")


def test_what_other_machines_say_reaches_no_terminal_raw(address: str, fake: FakeCoordinator) -> None:
    attic, shed = NODES.nodes
    fake.nodes = dataclasses.replace(NODES, nodes=(attic, dataclasses.replace(shed, unusable="\x1b[2J\u202e")))
    fake.plan = dataclasses.replace(PLAN, notes=("see \x1b]0;title\x07",))
    nodes, plan = run(address, "nodes"), run(address, "plan", "tiny")
    assert r"cannot be used: \x1b[2J\u202e" in nodes.stdout
    assert r"see \x1b]0;title\x07" in plan.stdout
    assert "\x1b" not in nodes.output + plan.output
