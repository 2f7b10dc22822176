"""Options and skips that all tests share."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC logs lost peers on its own, which tests lose by the hundred


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that need the Qwen model (491 MB)")
    parser.addoption("--quick", action="store_true", help="leave out the tests that start real daemons and workers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if "system" in item.keywords])
        items[:] = [item for item in items if "system" not in item.keywords]
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="needs the Qwen model; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
