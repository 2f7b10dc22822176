"""A coordinator that serves a model whose every layer has a window keeps the window of each sequence, and no more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.embedded import embedded_coordinator
from layerline.async_client import AsyncClient
from layerline.stats_report import StatsReport
from tests.fakes.coordinators import settings_for, split
from tests.fakes.node_service import nodes_of, tiny_card
from tests.fakes.specs import windowed

WINDOW_TOKENS = 16  # as many as a page
DEADLINE_S = 20.0


@pytest.mark.parametrize(("first_windowed_layer", "cached"), [(0, 2), (1, 12)])
async def test_pages_of_an_answer_behind_the_window_are_free_at_its_end(
    tmp_path: Path, first_windowed_layer: int, cached: int
) -> None:
    """Twelve pages are whole: all stay cached if a layer still sees them, else only the prompt's and the last one."""
    card = tiny_card(tmp_path)
    spec = windowed(card.spec, WINDOW_TOKENS, first_windowed_layer)
    async with (
        asyncio.timeout(DEADLINE_S),
        nodes_of(replace(card, spec=spec), "a", "b") as nodes,
        embedded_coordinator(settings_for(nodes)) as embedded,
        AsyncClient(embedded.address) as client,
    ):
        async for _ in client.prepare("tiny", layers=split("a", "b").layers):
            pass
        answer = await client.generate("a" * 20, max_tokens=180)
        assert len(answer.token_ids) == 180
        stats = await settled(client)
    assert (stats.pages.used, stats.pages.cached) == (0, cached)


async def settled(client: AsyncClient) -> StatsReport:
    """How things stand once no sequence is left."""
    while True:
        stats = await client.stats()
        if stats.pages.used == 0:
            return stats
