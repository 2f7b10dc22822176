"""The lab itself, since every other system test stands on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import network
from tests.lab.lab import Lab
from tests.lab.process import LateError, wait_until

PING = "import socket, sys; socket.create_connection((sys.argv[1], 7), timeout=0.5)"
LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 7), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print("up", flush=True)
while True: server.accept()[0].close()
"""
HEAR_MULTICAST = """
import socket, sys
group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
group.bind(("224.0.0.251", 5353))
membership = socket.inet_aton("224.0.0.251") + socket.inet_aton(sys.argv[1])
group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
print("up", flush=True)
print(group.recv(100).decode())
"""
SEND_MULTICAST = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
sender.sendto(b"hello all", ("224.0.0.251", 5353))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab("a", "b") as lab:
        yield lab


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


@pytest.mark.parametrize("kind", ["ipv4", "ipv6"])
def test_machines_reach_each_other(lab: Lab, kind: str) -> None:
    address = getattr(lab["a"], kind)
    server = lab["a"].start(python(LISTEN, address))
    server.wait_for("up", deadline_s=10)
    assert lab["b"].run(python(PING, address)).exit_code == 0


def test_multicast_crosses_the_switch(lab: Lab) -> None:
    hearing = lab["b"].start(python(HEAR_MULTICAST, lab["b"].ipv4))
    hearing.wait_for("up", deadline_s=10)
    lab["a"].run(python(SEND_MULTICAST, lab["a"].ipv4))
    assert hearing.wait(deadline_s=10).stdout == "up\nhello all\n"


def test_an_unplugged_cable_loses_the_carrier_and_gets_it_back(lab: Lab) -> None:
    carrier = ["cat", "/sys/class/net/eth0/carrier"]
    lab["a"].unplug()
    assert lab["a"].run(carrier).stdout == "0\n"
    lab["a"].plug()
    assert lab["a"].run(carrier).stdout == "1\n"


def test_machines_see_nothing_of_this_machine(lab: Lab) -> None:
    names = lab["a"].run(["ls", "/sys/class/net"]).stdout.split()
    assert sorted(names) == ["eth0", "lo"]
    variables = lab["a"].run(python("import json, os; print(json.dumps(dict(os.environ)))")).stdout
    assert json.loads(variables)["HOME"] == str(lab["a"].folder)


def test_a_program_is_pinned_to_its_core(lab: Lab) -> None:
    assert lab["a"].run(python("import os; print(os.sched_getaffinity(0))"), cpu=0).stdout == "{0}\n"


def test_cables_have_the_rate_asked_for() -> None:
    with Lab("a", rate_mbit=100) as lab:
        assert "tbf" in lab["a"].run(["tc", "qdisc", "show", "dev", "eth0"]).stdout
        assert "rate 100Mbit" in lab["a"].run(["tc", "qdisc", "show", "dev", "eth0"]).stdout


def test_a_network_without_ipv4() -> None:
    with Lab("a", "b", ipv4=False) as lab:
        assert not lab["a"].ipv4
        server = lab["a"].start(python(LISTEN, lab["a"].ipv6))
        server.wait_for("up", deadline_s=10)
        assert lab["b"].run(python(PING, lab["a"].ipv6)).exit_code == 0


def test_a_failing_block_leaves_nothing() -> None:
    lab = Lab("a")
    with pytest.raises(LateError):
        wait_too_briefly(lab)
    assert lab["a"].namespace not in network.namespaces_here()
    assert not lab["a"].folder.exists()


def wait_too_briefly(lab: Lab) -> None:
    with lab:
        lab["a"].start(["sleep", "1000"]).wait(deadline_s=0.05)


def test_what_a_killed_run_left_is_swept() -> None:
    code = """
import os, signal
from tests.lab.lab import Lab
with Lab("a") as lab:
    process = lab["a"].start(["sleep", "1000"])
    print(lab["a"].namespace, process.pid, lab["a"].folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run(python(code), capture_output=True, text=True, timeout=20)
    assert killed.returncode == -signal.SIGKILL
    namespace, pid, folder = killed.stdout.split()
    with Lab("b"):
        assert namespace not in network.namespaces_here()
        assert not Path(folder).exists()
        wait_until(lambda: not Path(f"/proc/{pid}/fd").exists(), "end of the orphan", deadline_s=5)


def test_a_frozen_machine_does_nothing_until_it_thaws(lab: Lab) -> None:
    process = lab["a"].start(["sh", "-c", "echo up; exec sleep 1000"])
    process.wait_for("up", deadline_s=10)
    with lab["a"].frozen():
        status = Path(f"/proc/{process.pid}/stat").read_text()
        assert status.rpartition(")")[2].split()[0] == "T"
    assert process.running
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(deadline_s=5).exit_code == -signal.SIGKILL
