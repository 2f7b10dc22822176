"""Children end with their block, their last words are bounded, and those that compute know how."""

from __future__ import annotations

import asyncio
import sys

import psutil
import pytest

from layerline.hosting.child import LAST_LINES, MAX_LINE_BYTES, LastWords, child, compute_environment

DEADLINE_S = 20


async def heard(data: bytes) -> LastWords:
    stream, words = asyncio.StreamReader(), LastWords(prefix="it")
    stream.feed_data(data)
    stream.feed_eof()
    await words.listen(stream)
    return words


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (b"", ""),
        (b"one\ntwo", "two"),
        (b"one\n\n  \n", "one"),
        (b"\xff\x1b[2Jred\n", "\ufffd\\x1b[2Jred"),
        (b"line\n" * (LAST_LINES + 5) + b"end\n", "end"),
    ],
)
async def test_the_last_line_that_says_something_is_kept(data: bytes, last: str) -> None:
    assert (await heard(data)).last == last


async def test_a_line_without_end_is_cut() -> None:
    assert len((await heard(b"x" * (MAX_LINE_BYTES * 3 + 5))).last) == 5


async def test_a_child_is_dead_when_its_block_is_left() -> None:
    command = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
    async with asyncio.timeout(DEADLINE_S), child(command) as (process, _):
        assert process.stdout is not None
        await process.stdout.readline()
    assert process.returncode is not None
    assert not psutil.pid_exists(process.pid)


async def test_a_child_that_loses_its_daemon_ends_itself() -> None:
    program = """
import time
from layerline.hosting.child import end_with_parent
end_with_parent()
print("up", flush=True)
time.sleep(600)
"""
    async with asyncio.timeout(DEADLINE_S), child((sys.executable, "-c", program)) as (process, _):
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdout.readline()
        process.stdin.close()
        assert await process.wait() == 1


def test_a_child_that_computes_gets_its_threads_and_the_numbering_of_devices() -> None:
    environment = compute_environment({"HOME": "/h", "OMP_NUM_THREADS": "99"}, 3)
    assert environment["HOME"] == "/h"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
