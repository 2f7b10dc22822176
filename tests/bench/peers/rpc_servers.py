"""llama.cpp's RPC servers on machines of the lab."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.bench.peers.first import start_first
from tests.lab.commands import tool
from tests.lab.machine import Machine
from tests.lab.process import Process, wait_until

PORT = 50052
START_DEADLINE_S = 20.0
END_DEADLINE_S = 10.0


@contextmanager
def rpc_servers(program: str, placed: Sequence[tuple[Machine, int]]) -> Iterator[str]:
    """A server on each of the machines, with its core to itself; their addresses as llama.cpp wants them."""
    started: list[Process] = []
    try:
        for machine, core in placed:
            words = [program, "--host", machine.ipv4, "--port", str(PORT), "--threads", "1"]
            started.append(start_first(machine, words, [core]))
        for machine, _ in placed:
            _await_listening(machine)
        yield ",".join(f"{machine.ipv4}:{PORT}" for machine, _ in placed)
    finally:
        for process in started:
            process.signal(signal.SIGKILL)
            process.wait(deadline_s=END_DEADLINE_S)


def _await_listening(machine: Machine) -> None:
    """The server says nothing that can be waited for: its output is kept in a buffer."""
    words = ("ip", "netns", "exec", machine.namespace, "ss", "--no-header", "--listening", "--tcp", "--numeric")
    wait_until(lambda: f":{PORT} " in tool(*words), f"an RPC server on {machine.name}", deadline_s=START_DEADLINE_S)
