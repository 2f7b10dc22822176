"""What may be loaded by whom: scripts must not pay for torch, and help must not pay for gRPC."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from layerline.cli.main import SUMMARIES

pytestmark = pytest.mark.system

HEAVY = {"torch", "numpy", "transformers"}
COMMAND_LINE = {"click", "rich"}
SERVING = {"gguf", "tokenizers", "jinja2", "zeroconf", "safetensors", "psutil"}
REPORT = "import json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def loaded_by(code: str) -> set[str]:
    """The top-level modules that are loaded once a fresh interpreter has run `code`."""
    done = subprocess.run([sys.executable, "-c", f"{code}\n{REPORT}"], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_clients_are_light() -> None:
    loaded = loaded_by("from layerline import *")
    assert "grpc" in loaded
    assert loaded & (HEAVY | COMMAND_LINE | SERVING) == set()


def test_the_package_and_its_nouns_load_no_grpc() -> None:
    loaded = loaded_by("from layerline import UsageError, Message, PlanReport, GenerateOptions")
    assert loaded & (HEAVY | COMMAND_LINE | SERVING | {"grpc", "google"}) == set()


@pytest.mark.parametrize("command", ["", *SUMMARIES])
def test_help_loads_neither_grpc_nor_anything_that_serves(command: str) -> None:
    help_ = f"from layerline.cli.main import program\nprogram.run({[*command.split(), '--help']!r})"
    assert loaded_by(help_) & (HEAVY | SERVING | {"grpc", "google", "rich", "asyncio"}) == set()


@pytest.mark.parametrize(
    "module",
    [
        "node.daemon.daemon",
        "coordinator.embedded",
        "layerline.cli.prompt",
        "layerline.cli.chat",
        "layerline.cli.perplexity",
    ],
)
def test_daemon_coordinator_and_command_start_without_what_only_model_files_need(module: str) -> None:
    of_files = {"torch", "transformers", "gguf", "safetensors", "tokenizers", "jinja2"}
    assert loaded_by(f"import {module}") & of_files == set()


def test_the_daemon_computes_nothing() -> None:
    assert loaded_by("import node.daemon.daemon") & HEAVY == set()
