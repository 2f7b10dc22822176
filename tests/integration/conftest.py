"""What the tests of a coordinator over nodes of this process share."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from layerline.models.card import ModelCard
from tests.fakes.complaints import complaints
from tests.fakes.node_service import tiny_card


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return tiny_card(tmp_path_factory.mktemp("model"))


@pytest.fixture
async def nothing_left_over(caplog: pytest.LogCaptureFixture) -> AsyncIterator[None]:
    """After the test there is no task but its own, and asyncio has complained of nothing."""
    yield
    gc.collect()
    assert [record for record in complaints(caplog) if record.name == "asyncio"] == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
