"""A whole node as a process on this machine, daemon and workers and all, with what it would measure given to it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from node.daemon.devices.readings import Speed
from node.daemon.devices.speeds import speed_file, speed_key
from node.daemon.devices.system import system_devices

END_DEADLINE_S = 10.0
SPEED = Speed(matrix_flops_per_s=1e11, memory_bytes_per_s=1e10)
ALL_REDUCE_US = 50.0


@dataclass(frozen=True, kw_only=True)
class RealNode:
    """A node that answers at `address`."""

    address: str
    daemon: psutil.Process

    def ranks(self) -> list[psutil.Process]:
        """Its workers, rank 0 first; none once its daemon is gone."""
        try:
            return sorted(self.daemon.children(), key=lambda child: child.pid)
        except psutil.NoSuchProcess:
            return []


@asynccontextmanager
async def real_node(home: Path, name: str, device: str) -> AsyncIterator[RealNode]:
    """The node `name` of one-thread devices, with the models in home/models; ended in order with the block."""
    _spare_measuring(home, parts=device.count(",") + 1)
    options = {"name": name, "host": "127.0.0.1", "port": "0", "device": device, "models": home / "models"}
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "layerline.cli.main", "node", *words, "--no-mdns"),
        stderr=PIPE,
        env={**os.environ, "LAYERLINE_STATE": str(home), "LAYERLINE_CACHE": str(home)},
    )
    assert process.stderr is not None
    said = b""
    try:
        while not (match := re.search(rb"Listening on (\S+)\.", said)):
            line = await process.stderr.readline()
            assert line, f"it ended:\n{said.decode()}"
            said += line
        yield RealNode(address=match[1].decode(), daemon=psutil.Process(process.pid))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(END_DEADLINE_S):
            said += await process.stderr.read()
            await process.wait()
        print(f"Node {name} said:\n{said.decode()}")  # pytest shows it where a test fails


def _spare_measuring(home: Path, parts: int) -> None:
    """Leaves measurements in the node's state, as an earlier start of it would have."""
    with system_devices({}) as system:
        key = speed_key(system.read("cpu"), 1)
    speed_file(home).write({key: SPEED})
    (home / "all_reduce.json").write_text(json.dumps({"; ".join([key] * parts): ALL_REDUCE_US}))
