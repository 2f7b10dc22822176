"""The wires of a lab: one switch namespace with a bridge, and a namespace with one cable for every machine.

Knows nothing of what runs in the namespaces. Names carry the process id of their maker, so that what a killed
run has left behind can be told from what is in use.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator

import psutil

from tests.lab.commands import LabError, tool

PREFIX = "layerline-lab"
INTERFACE = "eth0"
SWITCH = "switch"
IPV4 = "10.73.0.{}"
IPV6 = "fd73::{}"
BURST = "256kb"  # at least a timer tick of a gigabit, and several segments of 64 KiB
QUEUE = "50ms"
DEATH_DEADLINE_S = 5.0


def add_switch(lab: str) -> None:
    """Makes the namespace of `lab` that every cable ends in."""
    switch = f"{lab}-{SWITCH}"
    _add_namespace(switch)
    # Snooping would keep multicast from ports that have not asked for it, and nobody queries here.
    tool("ip", "-n", switch, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
    tool("ip", "-n", switch, "link", "set", "br0", "up")


def add_machine(
    lab: str, machine: str, number: int, *, ipv4: bool, ipv6: bool, link_local: bool, rate_mbit: int | None
) -> None:
    """Makes the namespace of a machine, plugged into the switch, with the addresses asked for."""
    namespace, switch, port = f"{lab}-{machine}", f"{lab}-{SWITCH}", port_of(number)
    _add_namespace(namespace)
    tool("ip", "link", "add", INTERFACE, "netns", namespace, "type", "veth", "peer", "name", port, "netns", switch)
    if not (ipv6 or link_local):
        _set(namespace, "ipv6/conf/eth0/disable_ipv6", "1")
    tool("ip", "-n", switch, "link", "set", port, "master", "br0")
    tool("ip", "-n", switch, "link", "set", port, "up")
    tool("ip", "-n", namespace, "link", "set", INTERFACE, "up")
    if ipv4:
        tool("ip", "-n", namespace, "address", "add", f"{IPV4.format(number)}/24", "dev", INTERFACE)
    if ipv6:
        tool("ip", "-n", namespace, "address", "add", f"{IPV6.format(number)}/64", "dev", INTERFACE, "nodad")
    if rate_mbit is not None:
        limit_rate(namespace, INTERFACE, rate_mbit)
        limit_rate(switch, port, rate_mbit)


def add_bridge(namespace: str, name: str, address: str) -> None:
    """Gives a machine a bridge of its own, as a container engine does; `address` has its prefix."""
    tool("ip", "-n", namespace, "link", "add", name, "type", "bridge")
    tool("ip", "-n", namespace, "link", "set", name, "up")
    tool("ip", "-n", namespace, "address", "add", address, "dev", name)


def port_of(number: int) -> str:
    """The interface in the switch that the machine's cable ends in."""
    return f"port{number}"


def limit_rate(namespace: str, interface: str, rate_mbit: int) -> None:
    """Lets `interface` send no faster than `rate_mbit` megabits a second, by a token bucket."""
    shape = ("tbf", "rate", f"{rate_mbit}mbit", "burst", BURST, "latency", QUEUE)
    tool("tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", *shape)


def set_cable(lab: str, number: int, *, plugged: bool) -> None:
    """Plugs or unplugs a machine at its switch port: the machine loses its carrier, the others see nothing."""
    tool("ip", "-n", f"{lab}-{SWITCH}", "link", "set", port_of(number), "up" if plugged else "down")


def remove_all(prefix: str) -> None:
    """Ends every process in the namespaces that begin with `prefix`, and removes them."""
    namespaces = [name for name in namespaces_here() if name.startswith(prefix)]
    for namespace in namespaces:
        kill_processes(namespace)
    for namespace in namespaces:
        with contextlib.suppress(LabError):  # another run may be sweeping too
            tool("ip", "netns", "delete", namespace)


def sweep_dead_runs() -> None:
    """Removes the namespaces that test runs which were killed have left behind."""
    for name in namespaces_here():
        if is_of_dead_run(name):
            remove_all(name)


def is_of_dead_run(name: str) -> bool:
    """Whether `name` was given by a process that is no more."""
    owner = re.match(rf"{PREFIX}-(\d+)-", name)
    return owner is not None and not psutil.pid_exists(int(owner[1]))


def namespaces_here() -> list[str]:
    """The names of all network namespaces of this system that have one."""
    return [line.split()[0] for line in tool("ip", "netns", "list").splitlines() if line.strip()]


def processes_in(namespace: str) -> list[int]:
    """The ids of the processes whose network is `namespace`."""
    return [int(pid) for pid in tool("ip", "netns", "pids", namespace).split()]


def kill_processes(namespace: str) -> None:
    """Kills all that runs in `namespace` and waits for its end, so that no child is started meanwhile."""
    deadline = time.monotonic() + DEATH_DEADLINE_S
    for pids in _living(namespace):
        if time.monotonic() > deadline:
            raise LabError(f"processes {pids} in {namespace} do not die")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _living(namespace: str) -> Iterator[list[int]]:
    while True:
        try:
            pids = processes_in(namespace)
        except LabError:  # removed by another run's sweep
            return
        if not pids:
            return
        yield pids


def _add_namespace(namespace: str) -> None:
    tool("ip", "netns", "add", namespace)
    # Duplicate address detection would keep link-local addresses unusable for a second or two.
    _set(namespace, "ipv6/conf/default/accept_dad", "0")
    tool("ip", "-n", namespace, "link", "set", "lo", "up")


def _set(namespace: str, setting: str, value: str) -> None:
    script = 'printf %s "$2" > "/proc/sys/net/$1"'
    tool("ip", "netns", "exec", namespace, "sh", "-c", script, "sh", setting, value)
