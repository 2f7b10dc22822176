"""Whatever a machine is called, its node and its coordinator have a name that others take."""

from __future__ import annotations

import pytest

from coordinator.settings import CoordinatorSettings
from layerline.host_name import host_name
from node.daemon.options import parse_name
from node.daemon.settings import resolve_settings


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("kitchen", "kitchen"),
        ("kitchen.example.org", "kitchen"),
        ("k\udcfcche", "k-che"),  # a byte that is no UTF-8, as Python gives it
        ("küche", "küche"),
        ("a=b,c\x1b[31m", "a-b-c-[31m"),
        ("ü" * 40, "ü" * 31),
        ("\udcff\udcfe", "machine"),
        ("", "machine"),
    ],
)
def test_a_host_name_is_made_valid(machine: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: machine)
    assert host_name() == name
    assert parse_name(name) == name
    assert resolve_settings({}, {}, None).name == name
    assert CoordinatorSettings().name.rpartition("-")[0] == name
