"""A client of the coordinator that answers by heart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from layerline.client import Client


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client
