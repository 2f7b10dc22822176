"""The files that docs/architecture.md names as a prompt's and a token's way are there, and import each other so."""

from __future__ import annotations

import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
LEADS = re.compile(r"\s*([→⇒])\s*")


def ways() -> list[list[str]]:
    """The ways of the section, each a list of files with the arrows between them."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## The reader's path")[2].partition("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    joined: list[str] = []
    for line in lines:
        if LEADS.match(line):
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return [LEADS.split(way) for way in joined]


def test_the_files_of_the_readers_path_import_each_other_in_its_order() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed")
    graph = grimp.build_graph("layerline", "coordinator", "node", cache_dir=None)
    steps = [step for way in ways() for step in zip(way[::2], way[1::2], way[2::2], strict=False)]
    assert len(steps) > 20
    for file, arrow, following in steps:
        assert (ROOT / file).is_file(), file
        assert (ROOT / following).is_file(), following
        if arrow == "→":
            assert graph.direct_import_exists(importer=_module(file), imported=_module(following)), (file, following)


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")
