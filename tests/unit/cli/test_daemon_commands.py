"""`layerline node` and `layerline coordinator` hand on what they were told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator.http_settings import HttpSettings
from coordinator.settings import CoordinatorSettings
from layerline.cli.main import program
from layerline.errors import PortInUseError
from layerline.plan_request import ManualStage, PlanRequest
from node.daemon.settings import NodeSettings


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments)


@pytest.fixture
def started_nodes(monkeypatch: pytest.MonkeyPatch) -> list[NodeSettings]:
    started: list[NodeSettings] = []

    def run_node(settings: NodeSettings) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr("node.daemon.daemon.run_node", run_node)
    return started


def test_a_node_gets_its_flags(started_nodes: list[NodeSettings], tmp_path: Path) -> None:
    flags = ["--name", "attic", "--host", "127.0.0.1", "--port", "7400", "--device", "cpu:3", "--memory", "2GiB"]
    more = ["--models", str(tmp_path), "--keep-alive", "1m", "--no-mdns"]
    assert run("node", *flags, *more).exit_code == 0
    (settings,) = started_nodes
    assert (settings.name, settings.host, settings.port, settings.threads) == ("attic", "127.0.0.1", 7400, 3)
    assert (settings.memory_bytes, settings.models, settings.keep_alive_s) == (2 << 30, tmp_path, 60.0)
    assert settings.mdns is False


def test_flags_win_over_the_environment_and_that_over_the_file(
    started_nodes: list[NodeSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "node.toml"
    config.write_text('name = "file"\nport = 1\nmdns = false\nthreads = 2\n')
    monkeypatch.setenv("LAYERLINE_NODE_NAME", "environment")
    monkeypatch.setenv("LAYERLINE_NODE_PORT", "2")
    assert run("node", "--config", str(config), "--name", "flag").exit_code == 0
    (settings,) = started_nodes
    assert (settings.name, settings.port, settings.threads, settings.mdns) == ("flag", 2, 2, False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--port", "99999"], "--port is '99999'"),
        (["--memory", "lots"], "--memory is 'lots'"),
        (["--device", "abacus"], "--device is 'abacus'"),
        (["--config", "/nonexistent.toml"], "--config /nonexistent.toml cannot be read"),
        (["--treads", "2"], "No such option '--treads'. Did you mean '--threads'?"),
    ],
)
def test_a_wrong_flag_of_a_node_is_one_sentence_that_names_it(arguments: list[str], reason: str) -> None:
    result = run("node", *arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert reason in line


class StandInProgram(ModuleType):
    """The coordinator's program, which only remembers how it was started."""

    def __init__(self) -> None:
        super().__init__("coordinator.program")
        self.started: list[tuple[Any, ...]] = []

    def run_coordinator(self, *told: Any) -> int:
        self.started.append(told)
        if told[3] == 1:
            raise PortInUseError("Port 1 is in use.", remedy="Choose another --port.")
        return 0


@pytest.fixture
def coordinator_program(monkeypatch: pytest.MonkeyPatch) -> StandInProgram:
    stand_in = StandInProgram()
    monkeypatch.setitem(sys.modules, "coordinator.program", stand_in)
    return stand_in


def test_a_coordinator_gets_what_it_is_told(coordinator_program: StandInProgram) -> None:
    placing = ["--model", "tiny", "--layers", "a=0-1", "--dtype", "float32", "--kv-dtype", "int8"]
    placing += ["--tensor-parallel", "4"]
    finding = ["--name", "desk", "--host", "127.0.0.1", "--port", "7000", "--no-mdns", "--node", "h:1", "--node", "h:2"]
    assert run("coordinator", *placing, *finding, "--http", "localhost:9100").exit_code == 0
    ((settings, request, host, port),) = coordinator_program.started
    assert settings == CoordinatorSettings(
        name="desk", nodes=("h:1", "h:2"), mdns=False, http=HttpSettings(host="localhost", port=9100), drain_s=10.0
    )
    stages = (ManualStage(node="a", first_layer=0, last_layer=1),)
    assert request == PlanRequest(model="tiny", dtype="float32", kv_dtype="int8", layers=stages, tensor_parallel=4)
    assert (host, port) == ("127.0.0.1", 7000)


def test_a_coordinator_names_itself_and_listens_everywhere_unless_told(coordinator_program: StandInProgram) -> None:
    assert run("coordinator", "--model", "tiny").exit_code == 0
    ((settings, _, host, port),) = coordinator_program.started
    assert settings.name
    assert (settings.mdns, settings.http, host, port) == (True, HttpSettings(port=7380, chosen=False), "", 7354)


def test_a_port_in_use_is_exit_code_6(coordinator_program: StandInProgram) -> None:
    result = run("coordinator", "--model", "tiny", "--port", "1")
    assert (result.exit_code, result.stderr) == (6, "layerline: error: Port 1 is in use. Choose another --port.\n")


def test_a_bug_is_one_sentence_and_with_v_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: NodeSettings) -> int:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("node.daemon.daemon.run_node", broken)
    result = run("node")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "ZeroDivisionError('a bug')" in result.stderr
    for told in (run("-v", "node"), run("node", "-v")):
        assert "Traceback" in told.stderr
        assert told.stderr.splitlines()[-1].startswith("layerline: error: ")
