"""Whatever keeps the kernels from being used is one sentence, and the slower path is taken."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from layerline.errors import PlanInvalidError, StageFailedError
from node.kernels import library as library_module
from node.kernels.engine import Engine
from node.kernels.library import KernelsMissingError, Library, chosen_instruction_set, kernels_here, library
from node.kernels.structures import VERSION
from node.native.computation import load_computation
from node.ranks.group import Alone
from node.slices.stage_part import StagePart
from tests.fakes.model_files import TinyModel
from tests.fakes.tiny_models import BY_KERNELS, StoredModel

COMPILER = shutil.which("g++") or shutil.which("c++")
X86 = platform.machine().lower() in ("x86_64", "amd64")


def test_they_were_built_where_there_is_a_compiler() -> None:
    assert kernels_here() or COMPILER is None


def test_every_processor_can_run_the_plain_ones() -> None:
    assert library().instruction_sets[-1] == "plain"
    assert kernels_here() == library().instruction_sets[0]


def test_no_library_is_told_as_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(KernelsMissingError, match="were not built when layerline was installed"):
        Library(tmp_path / "kernels.so")


@pytest.mark.parametrize("content", [b"", b"no library at all", b"\x7fELF" + bytes(100)])
def test_a_file_that_is_no_library_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kernels.so"
    path.write_bytes(content)
    with pytest.raises(KernelsMissingError, match="cannot be loaded"):
        Library(path)


@pytest.mark.skipif(COMPILER is None, reason="no compiler")
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("int unrelated() { return 1; }", "cannot be loaded"),
        ("int layerline_version() { return 999; }", "of another version"),
        (
            f"int layerline_version() {{ return {VERSION}; }} char *layerline_instruction_set() {{ return 0; }}",
            "other processors",
        ),
    ],
)
def test_a_library_of_another_kind_is_told(tmp_path: Path, source: str, words: str) -> None:
    names = [
        "engine",
        "attention_bytes",
        "end",
        "row_bytes",
        "panel_bytes",
        "prepared_bytes",
        "pack",
        "run",
        "instruction_set",
    ]
    rest = "".join(f"void layerline_{name}() {{}}\n" for name in names if f"layerline_{name}" not in source)
    (tmp_path / "kernels.c").write_text(source + "\n" + (rest if "layerline" in source else ""))
    path = tmp_path / "kernels.so"
    assert COMPILER is not None
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "kernels.c"], check=True, capture_output=True)
    with pytest.raises(KernelsMissingError, match=words):
        Library(path)


def test_they_can_be_switched_off_and_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library_module.SWITCH, "plain")
    assert chosen_instruction_set() == kernels_here() == "plain"
    monkeypatch.setenv(library_module.SWITCH, "sse9")
    assert kernels_here() == ""
    with pytest.raises(KernelsMissingError, match="LAYERLINE_KERNELS is sse9, but this processor and library have"):
        chosen_instruction_set()
    monkeypatch.setenv(library_module.SWITCH, "off")
    library.cache_clear()
    try:
        assert kernels_here() == ""
    finally:
        library.cache_clear()


def test_an_engine_of_what_there_is_not_is_refused() -> None:
    with pytest.raises(MemoryError, match="no kernels of sse9"):
        Engine(library(), "sse9", 1)


def test_a_stage_that_needs_them_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library_module.SWITCH, "sse9")
    stored = StoredModel.written(tmp_path, TinyModel())
    with pytest.raises(StageFailedError, match="has the kernels compute here, but there are none"):
        stored.stage(**BY_KERNELS)


def test_what_no_memory_can_hold_is_a_memory_error(tmp_path: Path) -> None:
    stored = StoredModel.written(tmp_path, TinyModel())
    spec = stored.spec(**{**BY_KERNELS, "pages": 1 << 24, "max_rows": 64})
    own = StagePart.of(stored.card, stored.path, spec, 0)
    with pytest.raises(MemoryError):
        load_computation(own, lambda done, total: None, Alone(), 1)


LIMITED = """
import resource
from node.kernels.engine import Engine
from node.kernels.library import library
kernels = library()
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20),) * 2)
Engine(kernels, kernels.instruction_sets[0], 256)
"""


def test_threads_that_cannot_be_started_are_a_memory_error() -> None:
    command = [sys.executable, "-c", LIMITED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "MemoryError: no kernels of" in done.stderr


@pytest.mark.parametrize(
    ("change", "words"), [({"page_tokens": 24}, "multiple of 16 tokens"), ({"devices": ("cuda:0",)}, "compute on CPUs")]
)
def test_a_stage_that_no_kernels_can_be_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    stored = StoredModel.written(tmp_path, TinyModel())
    with pytest.raises(PlanInvalidError, match=words):
        stored.stage(**{**BY_KERNELS, **change})
