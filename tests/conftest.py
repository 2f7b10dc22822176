"""Options and skips that all tests share."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC logs lost peers on its own, which tests lose by the hundred


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that need the Qwen model (491 MB)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="needs the Qwen model; run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)
