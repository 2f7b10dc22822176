"""A coordinator that stays up: the commands and the SDK find it, and what it holds is freed and recovered."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.lab.asking import ANSWER, MODEL, QUESTION, SYSTEM, answered, ask
from tests.lab.process import Process, wait_until
from tests.lab.two_nodes import TwoNodes

READY_DEADLINE_S = 40.0
IDLE_DEADLINE_S = 10.0
IDLE_LOOK_S = 0.3

SDK = f"""
from layerline import Client
with Client() as client:
    messages = [{{"role": "system", "content": {SYSTEM!r}}}, {{"role": "user", "content": {QUESTION!r}}}]
    print("".join(piece.text for piece in client.chat(messages, stream=True)))
    print([node.name for node in client.nodes().nodes], [model.name for model in client.models().models])
"""
LEAVE_EARLY = """
import sys, time
from layerline import Client
with Client() as client:
    with client.generate("Once upon a time", max_tokens=3000, stream=True) as stream:
        for piece, _ in zip(stream, range(3)):
            print(piece.text, flush=True)
    print("left", flush=True)
    sys.stdin.read()
    time.sleep(60)
"""
METRICS = "127.0.0.1:7380"
SCRAPE = f"""
from urllib.request import urlopen
print(urlopen("http://{METRICS}/metrics", timeout=5).read().decode())
"""
CHAT = f'printf "%s\\n" "{QUESTION}" "And of Italy?" | layerline chat --max-tokens 64 --model "$1"'


@pytest.fixture(scope="module")
def coordinator(cluster: TwoNodes) -> Iterator[Process]:
    process = cluster.desk.start(["layerline", "coordinator", "--model", MODEL])
    process.wait_for("Ready:", deadline_s=READY_DEADLINE_S)
    yield process
    process.terminate()
    assert process.wait(deadline_s=10).exit_code == 0


def test_a_prompt_on_another_machine_finds_it(cluster: TwoNodes, coordinator: Process) -> None:
    workers = cluster.workers()
    assert answered(ask(cluster.a))["text"] == ANSWER
    assert cluster.workers() == workers


def test_a_chat_on_another_machine_finds_it(cluster: TwoNodes, coordinator: Process) -> None:
    finished = cluster.b.run(["sh", "-c", CHAT, "sh", MODEL])
    assert finished.exit_code == 0, finished.stderr
    assert ANSWER in finished.stdout
    assert "Rome" in finished.stdout


def test_the_sdk_finds_it(cluster: TwoNodes, coordinator: Process) -> None:
    finished = cluster.b.run([sys.executable, "-c", SDK])
    assert finished.exit_code == 0, finished.stderr
    assert finished.stdout == f"{ANSWER}\n['a', 'b'] ['{MODEL}']\n"


def test_how_the_work_goes_is_told_on_another_machine_and_to_prometheus(
    cluster: TwoNodes, coordinator: Process
) -> None:
    assert answered(ask(cluster.a))["text"] == ANSWER
    told = cluster.b.run(["layerline", "stats", "--json"])
    assert told.exit_code == 0, told.stderr
    report = json.loads(told.stdout)
    assert [stage["node"] for stage in report["recent"]["stages"]] == ["a", "b"]
    assert all(stage["busy_s"] > 0 for stage in report["total"]["stages"])
    scraped = cluster.desk.run([sys.executable, "-c", SCRAPE])
    assert 'layerline_stage_busy_seconds_total{node="b",stage="1"} ' in scraped.stdout, scraped.stderr


def test_leaving_a_stream_early_frees_both_nodes(cluster: TwoNodes, coordinator: Process) -> None:
    leaving = cluster.a.start([sys.executable, "-c", LEAVE_EARLY])
    leaving.wait_for_output("^left", deadline_s=READY_DEADLINE_S)
    workers = [cluster.worker(cluster.a), cluster.worker(cluster.b)]
    wait_until(lambda: all(_is_idle(worker) for worker in workers), "idle workers", deadline_s=IDLE_DEADLINE_S)
    assert leaving.running
    leaving.kill()
    assert answered(ask(cluster.a))["text"] == ANSWER


def test_two_who_ask_at_once_both_get_answers(cluster: TwoNodes, coordinator: Process) -> None:
    asking = [
        machine.start(["layerline", "prompt", QUESTION, "--model", MODEL, "--system", SYSTEM])
        for machine in (cluster.a, cluster.b)
    ]
    assert [prompt.wait(deadline_s=READY_DEADLINE_S).stdout for prompt in asking] == [f"{ANSWER}\n"] * 2


@pytest.mark.slow
def test_it_brings_the_model_up_again_after_a_loss(cluster: TwoNodes, coordinator: Process) -> None:
    cluster.worker(cluster.b).kill()
    coordinator.wait_for("pipeline is lost(?s:.)*is served in epoch", deadline_s=READY_DEADLINE_S)
    assert answered(ask(cluster.a))["text"] == ANSWER


def test_a_second_one_is_told_who_holds_the_nodes(cluster: TwoNodes, coordinator: Process) -> None:
    refused = cluster.a.run(["layerline", "coordinator", "--model", MODEL])
    assert refused.exit_code == 6
    assert cluster.desk.ipv4 in refused.stderr


def test_an_address_without_a_coordinator(cluster: TwoNodes) -> None:
    refused = ask(cluster.a, "--coordinator", f"{cluster.b.ipv4}:7354")
    assert refused.exit_code == 3
    assert f"{cluster.b.ipv4}:7354" in refused.stderr


def _is_idle(worker: psutil.Process) -> bool:
    """Whether it uses no CPU for a moment; `cpu_percent` measures over its interval."""
    return worker.cpu_percent(interval=IDLE_LOOK_S) < 5
