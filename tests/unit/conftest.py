"""A coordinator that answers by heart."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.coordinator_service import FakeCoordinator, serving


@pytest.fixture
def fake() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.fixture
def address(fake: FakeCoordinator) -> Iterator[str]:
    with serving(fake) as address:
        yield address
