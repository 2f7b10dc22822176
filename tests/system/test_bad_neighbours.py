"""Two good nodes on a network where others misbehave."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import psutil
import pytest

from layerline.version import WIRE_VERSION
from tests.lab.asking import ANSWER, answered, ask, nodes_seen
from tests.lab.two_nodes import PORT, TwoNodes

UP_DEADLINE_S = 20.0
LISTENING = "0A"  # in the tables of /proc
SEND = """
import socket, sys
host, port, junk = sys.argv[1:]
socket.create_connection((host, int(port)), 5).sendall(bytes.fromhex(junk))
"""
JUNK = (
    b"",
    b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
    bytes.fromhex("1603010200010001fc0303") + b"\0" * 64,  # the beginning of TLS
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random.Random(1).randbytes(512),
    random.Random(2).randbytes(4096),
)


@pytest.mark.slow
def test_junk_on_control_and_data_ports(cluster: TwoNodes) -> None:
    answered(ask(cluster.desk, *cluster.by_address))
    workers = cluster.workers()
    for junk in JUNK:
        for port in (PORT, _data_port(cluster.worker(cluster.a))):
            words = [sys.executable, "-c", SEND, cluster.a.ipv4, str(port), junk.hex()]
            assert cluster.desk.run(words).exit_code == 0
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER
    assert cluster.workers() == workers


@pytest.mark.slow
def test_junk_mdns_while_nodes_are_searched(cluster: TwoNodes) -> None:
    junk = cluster.b.start([sys.executable, "-m", "tests.lab.junk_mdns", cluster.b.ipv4])
    junk.wait_for("^up", deadline_s=UP_DEADLINE_S)
    try:
        assert answered(ask(cluster.desk))["text"] == ANSWER
        assert {name for name, node in nodes_seen(cluster.desk).items() if not node["unusable"]} == {"a", "b"}
        assert junk.running
    finally:
        junk.kill()
    for daemon in cluster.daemons.values():
        assert daemon.running
        assert "Traceback" not in daemon.stderr.text


def test_a_node_of_another_version_is_shown_with_both_versions(cluster: TwoNodes) -> None:
    later = WIRE_VERSION + 98
    future = cluster.b.start([sys.executable, "-m", "tests.lab.future_node", cluster.b.ipv4, str(later)])
    future.wait_for("^up", deadline_s=UP_DEADLINE_S)
    try:
        why = nodes_seen(cluster.desk)["future"]["unusable"]
        assert f"version {later}" in why
        assert f"speaks {WIRE_VERSION}" in why
        assert answered(ask(cluster.desk))["text"] == ANSWER
    finally:
        future.kill()


def _data_port(worker: psutil.Process) -> int:
    """The one port beside the daemon's that is listened on in the worker's network."""
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{worker.pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == LISTENING:
                listening.add(int(local.rpartition(":")[2], 16))
    (port,) = listening - {PORT}
    return port
