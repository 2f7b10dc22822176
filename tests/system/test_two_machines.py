"""One prompt through two machines that found each other, and what a user may do wrong meanwhile."""

from __future__ import annotations

import shutil
import signal

import pytest

from tests.lab.asking import ANSWER, MODEL, answered, ask, begin_long_answer, nodes_seen
from tests.lab.two_nodes import PORT, TwoNodes

END_DEADLINE_S = 15.0


def test_both_machines_answer(cluster: TwoNodes) -> None:
    answer = answered(ask(cluster.desk))
    assert answer["text"] == ANSWER
    assert answer["finish_reason"] == "stop"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (37, 8)
    first, last = answer["plan"]
    assert {first["node"], last["node"]} == {"a", "b"}
    assert (first["first_layer"], first["last_layer"] + 1, last["last_layer"]) == (0, last["first_layer"], 29)
    assert answer["timings"]["decode_tokens_per_s"] > 0


def test_the_next_prompt_finds_the_model_loaded(cluster: TwoNodes) -> None:
    answered(ask(cluster.desk, *cluster.by_address))
    workers = cluster.workers()
    assert len(workers) == 2
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER
    assert cluster.workers() == workers


def test_a_prompt_on_a_node_itself(cluster: TwoNodes) -> None:
    assert answered(ask(cluster.a))["text"] == ANSWER


def test_nodes_are_listed_with_every_address(cluster: TwoNodes) -> None:
    seen = nodes_seen(cluster.desk)
    assert set(seen) == {"a", "b"}
    for machine in (cluster.a, cluster.b):
        node = seen[machine.name]
        assert node["unusable"] == ""
        assert {f"{machine.ipv4}:{PORT}", f"[{machine.ipv6}]:{PORT}"} <= set(node["addresses"])
        assert node["devices"][0]["budget_bytes"] == 300 << 20


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_leaving_in_mid_answer_frees_both_nodes_at_once(
    cluster: TwoNodes, number: signal.Signals, exit_code: int
) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address)
    workers = cluster.workers()
    prompt.signal(number)
    finished = prompt.wait(deadline_s=END_DEADLINE_S)
    assert finished.exit_code == exit_code
    assert "Traceback" not in finished.stderr
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER
    assert cluster.workers() == workers


def test_a_second_coordinator_is_told_who_holds_the_nodes(cluster: TwoNodes) -> None:
    prompt = begin_long_answer(cluster.desk, *cluster.by_address)
    refused = ask(cluster.a, *cluster.by_address)
    assert refused.exit_code == 6
    assert "held by" in refused.stderr
    assert cluster.desk.ipv4 in refused.stderr
    assert prompt.running
    prompt.interrupt()
    prompt.wait(deadline_s=END_DEADLINE_S)


def test_an_unknown_model_is_answered_with_the_nearest(cluster: TwoNodes) -> None:
    refused = ask(cluster.desk, *cluster.by_address, model="SmolLM2-135M-Instrukt")
    assert refused.exit_code == 4
    assert MODEL in refused.stderr
    assert refused.stdout == ""


def test_a_prompt_longer_than_the_context(cluster: TwoNodes) -> None:
    refused = ask(cluster.desk, *cluster.by_address, text="sea " * 9_000)
    assert refused.exit_code == 7
    assert "8192" in refused.stderr
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


def test_a_model_that_does_not_fit(cluster: TwoNodes) -> None:
    refused = cluster.desk.run(
        ["layerline", "plan", MODEL, "--dtype", "float32", "--context", "8192", *cluster.by_address]
    )
    assert refused.exit_code == 5
    assert "a 300 MiB, b 300 MiB" in refused.stderr


def test_layers_by_hand_with_a_gap(cluster: TwoNodes) -> None:
    refused = ask(cluster.desk, *cluster.by_address, "--layers", "a=0-10,b=15-29")
    assert refused.exit_code == 5
    assert "11" in refused.stderr


def test_a_port_in_use(cluster: TwoNodes) -> None:
    refused = cluster.a.run(["layerline", "node", "--name", "other", "--port", str(PORT)])
    assert refused.exit_code == 6
    assert str(PORT) in refused.stderr


def test_one_name_twice_on_one_machine(cluster: TwoNodes) -> None:
    refused = cluster.a.run(["layerline", "node", "--name", "a", "--port", "7360"])
    assert refused.exit_code == 6
    assert f"{cluster.a.ipv4}:{PORT}" in refused.stderr
    assert f"{cluster.a.ipv4}:7360" in refused.stderr
    assert cluster.daemons["a"].running


def test_one_id_on_two_machines(cluster: TwoNodes) -> None:
    shutil.copytree(cluster.a.folder / "state", cluster.desk.folder / "state", dirs_exist_ok=True)
    refused = cluster.desk.run(["layerline", "node", "--name", "a", "--device", "cpu:1"])
    assert refused.exit_code == 6
    assert f"{cluster.a.ipv4}:{PORT}" in refused.stderr
    assert cluster.desk.ipv4 in refused.stderr
    assert set(nodes_seen(cluster.desk)) == {"a", "b"}
