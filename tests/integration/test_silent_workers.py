"""A worker that goes silent while its node goes on is ended, so that no coordinator adopts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator import pipeline
from layerline.models.card import ModelCard
from layerline.rpc.links import FrameSender
from tests.fakes.coordinators import answer, coordinator_of, prepared, split
from tests.fakes.losses import comes_to
from tests.fakes.node_service import nodes_of, tiny_card


@pytest.fixture
def card(tmp_path: Path) -> ModelCard:
    return tiny_card(tmp_path)


class DeafSender(FrameSender):
    """A link of frames that never says that it broke, as if its own next ping were still to come."""

    @classmethod
    async def dial(cls, *arguments: Any, **options: Any) -> FrameSender:
        return await FrameSender.dial(*arguments, **{**options, "on_broken": lambda _: None})


async def test_a_last_worker_that_only_the_results_miss_is_ended(
    card: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "FrameSender", DeafSender)
    async with nodes_of(card, "a") as (node,), coordinator_of([node]) as coordinator:
        await prepared(coordinator, split("a"))
        assert node.worker is not None
        assert node.worker._server is not None
        await node.worker._server.stop(None)  # its daemon has no word of it
        await comes_to(coordinator, "serving", after_epoch=1)
        assert (await answer(coordinator, max_tokens=3)).text == "bcd"
        assert node.loads == 2
