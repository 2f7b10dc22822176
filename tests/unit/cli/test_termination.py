"""SIGTERM ends what runs, wherever the program is when it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.system

DEADLINE_S = 30
PROGRAM = """
import asyncio, os, signal, sys
from layerline.cli.termination import Termination

class Finalised:
    def __del__(self):  # what is raised here is lost
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass

async def wait():
    try:
        Finalised()
        await asyncio.sleep(60)
    finally:
        print("left", flush=True)

if sys.argv[1] == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
termination = Termination()
termination.install()
try:
    if sys.argv[1] == "finaliser":
        asyncio.run(wait())
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
except KeyboardInterrupt:
    print("ended", termination.came)
"""


@pytest.mark.parametrize(
    ("where", "told"), [("finaliser", "left\nended True\n"), ("plain", "ended True\n"), ("ignored", "ended True\n")]
)
def test_sigterm_ends_what_runs(where: str, told: str) -> None:
    """In a finaliser under a loop, without a loop, and where Ctrl-C is ignored."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, where], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert ended.stdout == told
