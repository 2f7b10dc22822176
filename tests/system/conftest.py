"""Fixtures of the system tests: labs, the real model, and the skip where there can be no lab."""

from __future__ import annotations

import os

import pytest

from tests.lab.permission import why_no_lab


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/system/" in item.nodeid:
            item.add_marker(pytest.mark.system)


@pytest.fixture(autouse=True)
def allowed() -> None:
    """Skips where namespaces are not allowed; a CI, where they must be, fails instead."""
    reason = why_no_lab()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to run the system tests, but {reason}")
    if reason:
        pytest.skip(reason)
