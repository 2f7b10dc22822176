"""Fixtures of the system tests: the skip where there can be no lab, the real model, and two nodes that hold it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.machine import REPOSITORY
from tests.lab.permission import why_no_lab
from tests.lab.two_nodes import TwoNodes, two_nodes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/system/" in item.nodeid:
            item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session", autouse=True)
def allowed() -> None:
    """Skips where namespaces are not allowed; a CI, where they must be, fails instead."""
    reason = why_no_lab()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to run the system tests, but {reason}")
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real model, fetched if it is not in the cache."""
    script = REPOSITORY / "scripts" / "get-model"
    done = subprocess.run([script, "smollm2"], stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cluster(allowed: None, smollm2: Path) -> Iterator[TwoNodes]:
    """Two nodes shared by the tests of a file, each of which leaves them as it found them."""
    with two_nodes(smollm2) as cluster:
        yield cluster
