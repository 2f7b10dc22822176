"""Which package may import which, and how long a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("layerline", "coordinator", "node")
MAX_LINES = 300


def source_files() -> Iterator[Path]:
    """Every file that somebody wrote."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if not path.is_relative_to(ROOT / "layerline" / "rpc" / "v1"):
                yield path


def test_the_import_contracts_hold() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    done = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_every_file_says_what_it_owns_and_is_short_or_says_why_not() -> None:
    wrong = {str(path.relative_to(ROOT)): fault for path in sorted(source_files()) if (fault := _fault(path))}
    assert wrong == {}


def test_only_the_transport_opens_channels_and_ports() -> None:
    opening = re.compile(r"(in)?secure_(channel|port)\b")
    where = {str(path.relative_to(ROOT)) for path in source_files() if opening.search(path.read_text())}
    assert where == {"layerline/rpc/transport.py"}


def test_tokenizers_and_templates_never_run_on_the_coordinators_event_loop() -> None:
    """The libraries that hold the interpreter are reached from the program of the text child alone."""
    grimp = pytest.importorskip("grimp", reason="import-linter is not installed")
    graph = grimp.build_graph(
        "coordinator", "layerline", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    child = {"coordinator.text.child", "coordinator.text.template"}
    for parent, kept in (("coordinator.catalogue", "layerline.models.card_cache"),):
        graph.remove_import(importer=parent, imported=kept)  # it reads cards there; a child makes them
    modules = {module for module in graph.modules if module.startswith("coordinator")} - child
    for library in ("tokenizers", "jinja2"):
        assert {module for module in modules if graph.chain_exists(importer=module, imported=library)} == set()
        assert graph.chain_exists(importer="coordinator.text.child", imported=library)


def _fault(path: Path) -> str:
    """What is wrong with a file; empty if nothing is."""
    text = path.read_text()
    docstring = ast.get_docstring(ast.parse(text)) or ""
    if text.strip() and not docstring:
        return "it has no docstring"
    if len(text.splitlines()) > MAX_LINES and "long because" not in docstring.lower():
        return f"over {MAX_LINES} lines: say in its docstring that it is long because …, or split it"
    return ""
