"""The library of a node: cards made by a child, once for all who ask, and what is said when that fails."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from layerline.errors import (
    DeadlineError,
    InternalError,
    LayerlineError,
    ModelCorruptError,
    ModelNotFoundError,
    OverloadedError,
)
from layerline.models.card import ModelCard
from layerline.models.indexer import IndexCommand, OnProgress, index_apart, index_command
from node.daemon.stages.model_library import MAX_INDEXINGS, ModelLibrary
from tests.fakes.model_files import TinyModel, write_gguf

pytestmark = pytest.mark.system

DEADLINE_S = 30


def ignore(_done_bytes: int, _total_bytes: int) -> None:
    pass


def saying(*lines: object, code: int = 0) -> IndexCommand:
    """An index child that says these lines and ends; None is a wait for the end of its input."""
    said = [
        "sys.stdin.read()" if line is None else f"print({json.dumps(json.dumps(line))}, flush=True)" for line in lines
    ]
    program = ["import sys", *said]
    program.append(f"print('last words', file=sys.stderr); sys.exit({code})")

    def command(_path: Path, _name: str, _cache: Path, _card_path: Path) -> Sequence[str]:
        return (sys.executable, "-S", "-c", "\n".join(program))

    return command


def library(tmp_path: Path, command: IndexCommand = index_command) -> ModelLibrary:
    (tmp_path / "work").mkdir(exist_ok=True)
    models = tmp_path / "models"
    models.mkdir(exist_ok=True)
    return ModelLibrary(models, node="kitchen", cache=tmp_path / "cache", work=tmp_path / "work", command=command)


def setting(event: asyncio.Event) -> OnProgress:
    return lambda _done_bytes, _total_bytes: event.set()


def with_files(tmp_path: Path, *names: str) -> None:
    (tmp_path / "models").mkdir()
    for name in names:
        (tmp_path / "models" / f"{name}.gguf").write_bytes(b"GGUF")


async def test_a_real_model_is_indexed_in_a_child_and_kept(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "tiny.gguf"
    write_gguf(path, TinyModel())
    shelf, progress = library(tmp_path), []
    async with asyncio.timeout(DEADLINE_S):
        opened = await shelf.open("tiny", lambda done, total: progress.append((done, total)))
        again = await shelf.open("tiny", ignore)
    assert again is opened
    assert progress[-1][0] == progress[-1][1] > 0
    card = ModelCard.from_bytes(opened.card_path.read_bytes())
    assert (card.name, card.digest, card.spec) == ("tiny", opened.digest, opened.spec)
    (listing,) = shelf.listings()
    assert (listing.name, listing.digest, listing.size_bytes) == ("tiny.gguf", opened.digest, path.stat().st_size)


async def test_a_model_that_changes_is_indexed_anew(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "tiny.gguf"
    write_gguf(path, TinyModel())
    shelf = library(tmp_path)
    async with asyncio.timeout(DEADLINE_S):
        before = await shelf.open("tiny", ignore)
        write_gguf(path, TinyModel(seed=1))
        after = await shelf.open("tiny", ignore)
    assert before.digest != after.digest


async def test_a_corrupt_file_is_the_childs_own_error(tmp_path: Path) -> None:
    with_files(tmp_path, "broken")
    with pytest.raises(ModelCorruptError, match=r"broken\.gguf") as caught:
        await library(tmp_path).open("broken", ignore)
    assert caught.value.node == "kitchen"


async def test_an_unknown_model_is_named_without_starting_anything(tmp_path: Path) -> None:
    with_files(tmp_path, "tiny")
    for name in ("other", "../models/tiny", "/etc/passwd"):
        with pytest.raises(ModelNotFoundError, match=r"tiny\.gguf") as caught:
            await library(tmp_path, saying()).open(name, ignore)
        assert caught.value.node == "kitchen"


@pytest.mark.parametrize(
    ("lines", "error", "words"),
    [
        ([], InternalError, "exit code 9 .last words"),
        ([["progress", "1", 2]], InternalError, "the words"),
        (["Hello"], InternalError, "the words"),
        ([["error", "no_such_error", "It is odd.", ""]], LayerlineError, "It is odd"),
        ([["card"]], ModelCorruptError, "cannot be kept"),
    ],
)
async def test_a_child_that_fails_is_an_error(
    tmp_path: Path, lines: list[object], error: type[LayerlineError], words: str
) -> None:
    with_files(tmp_path, "tiny")
    with pytest.raises(error, match=words):
        await library(tmp_path, saying(*lines, code=9)).open("tiny", ignore)


async def test_a_child_that_says_nothing_is_ended(tmp_path: Path) -> None:
    with pytest.raises(DeadlineError, match="no progress"):
        await index_apart(tmp_path, "tiny", tmp_path, tmp_path / "card", ignore, saying(None), silence_deadline_s=0.1)


async def test_all_who_ask_share_one_indexing_and_the_last_to_leave_ends_it(tmp_path: Path) -> None:
    with_files(tmp_path, "tiny")
    shelf = library(tmp_path, saying(["progress", 1, 2], None))
    heard = [asyncio.Event(), asyncio.Event()]
    asking = [asyncio.create_task(shelf.open("tiny", setting(event))) for event in heard]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(event.wait() for event in heard))
        assert len(shelf._indexings) == 1
        asking[0].cancel()
        await asyncio.wait({asking[0]})
        assert len(shelf._indexings) == 1
        (indexing,) = shelf._indexings.values()
        asking[1].cancel()
        assert indexing.task is not None
        await asyncio.wait({asking[1], indexing.task})
    assert shelf._indexings == {}


async def test_too_many_at_once_are_refused(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(MAX_INDEXINGS + 1)]
    with_files(tmp_path, *names)
    shelf = library(tmp_path, saying(["progress", 1, 2], None))
    heard = [asyncio.Event() for _ in range(MAX_INDEXINGS)]
    asking = [asyncio.create_task(shelf.open(name, setting(event))) for name, event in zip(names, heard, strict=False)]
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(event.wait() for event in heard))
        with pytest.raises(OverloadedError, match="Try again"):
            await shelf.open(names[-1], ignore)
        indexings = [indexing.task for indexing in shelf._indexings.values() if indexing.task is not None]
        for task in asking:
            task.cancel()
        await asyncio.wait([*asking, *indexings])


@pytest.mark.parametrize("end", ["os.abort()", "os.kill(os.getpid(), signal.SIGXCPU)"])
async def test_headers_over_the_childs_limits_are_the_files_fault(tmp_path: Path, end: str) -> None:
    program = f"import os, resource, signal; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); {end}"

    def command(_path: Path, _name: str, _cache: Path, _card_path: Path) -> Sequence[str]:
        return (sys.executable, "-S", "-c", program)

    with_files(tmp_path, "a")
    with pytest.raises(ModelCorruptError, match="more memory or processor time") as caught:
        await library(tmp_path, command).open("a", ignore)
    assert caught.value.node == "kitchen"
