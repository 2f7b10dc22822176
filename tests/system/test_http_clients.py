"""Clients that people have, unchanged, against a coordinator and two nodes with a real model."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.vocabularies import vocabularies
from tests.lab.asking import MODEL
from tests.lab.machine import REPOSITORY
from tests.lab.process import Process
from tests.lab.two_nodes import TwoNodes

URL = "http://127.0.0.1:7380"
READY_DEADLINE_S = 40.0
PROGRAMS = ("openai", "anthropic", "langchain", "litellm", "pydantic_ai", "instructor")
TEMPLATE = "Qwen-Qwen2.5-7B-Instruct.jinja"  # that of SmolLM2, and tools in Hermes' form


@pytest.fixture(scope="module")
def coordinator(cluster: TwoNodes) -> Iterator[Process]:
    template = vocabularies() / "templates" / TEMPLATE
    process = cluster.desk.start(["layerline", "coordinator", "--model", MODEL, "--chat-template", str(template)])
    process.wait_for("Ready:", deadline_s=READY_DEADLINE_S)
    yield process
    process.terminate()
    assert process.wait(deadline_s=15).exit_code == 0


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter that has the clients."""
    script = REPOSITORY / "scripts" / "get-clients"
    done = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return Path(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_works_unchanged(cluster: TwoNodes, coordinator: Process, python: Path, program: str) -> None:
    finished = cluster.desk.run([str(python), "-m", f"tests.clients.{program}_program", URL])
    assert finished.exit_code == 0, finished.stderr
