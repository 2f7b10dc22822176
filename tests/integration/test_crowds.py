"""Crowds of clients, through the SDK: those that leave, those that are too many, and those that ask for too much."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from coordinator.embedded import embedded_coordinator
from coordinator.service_bounds import ServiceBounds
from coordinator.text.process import MAX_WAITING
from layerline.answer import Completion
from layerline.async_client import AsyncClient
from layerline.errors import OverloadedError, PromptTooLongError
from layerline.models.card import ModelCard
from layerline.stats_report import StatsReport
from tests.fakes.coordinators import BOUNDS, settings_for, split
from tests.fakes.node_service import nodes_of

AT_ONCE = 40
PAGE_TOKENS = 16
DEADLINE_S = 60.0
LETTERS = "ABCDEFGHIJKLMNOP"


@asynccontextmanager
async def client_of(card: ModelCard, bounds: ServiceBounds = BOUNDS) -> AsyncIterator[AsyncClient]:
    """A client of a coordinator that serves the model on two nodes; there are KV pages for two contexts of 256."""
    async with (
        asyncio.timeout(DEADLINE_S),
        nodes_of(card, "a", "b", mib=34) as nodes,
        embedded_coordinator(settings_for(nodes), bounds=bounds) as embedded,
        AsyncClient(embedded.address) as client,
    ):
        async for _ in client.prepare("tiny", layers=split("a", "b").layers):
            pass
        yield client


async def settled(client: AsyncClient) -> StatsReport:
    """How things stand once no sequence is left; the deadline of the test is how long that may take."""
    while True:
        stats = await client.stats()
        now = stats.sequences
        if now.waiting + now.prefilling + now.decoding + now.leaving + stats.steps_in_flight == 0:
            return stats


# --- who leaves


async def leave_a_stream(client: AsyncClient, luck: random.Random) -> None:
    """Asks for a streamed answer and leaves after some pieces, of which there would be more."""
    wanted = luck.randrange(6)
    async with client.generate(prompt(luck), stream=True, max_tokens=150, n=luck.choice([1, 1, 3])) as pieces:
        for _ in range(wanted):
            await anext(pieces)


async def leave_a_whole(client: AsyncClient, luck: random.Random) -> None:
    """Asks for a whole answer and is cancelled after some turns of the event loop."""
    asking = asyncio.ensure_future(client.generate(prompt(luck), max_tokens=150, n=luck.choice([1, 1, 3])))
    for _ in range(luck.randrange(60)):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])


def prompt(luck: random.Random) -> str:
    return luck.choice(LETTERS) * luck.choice([1, 5, 20, 40, 80])


@pytest.mark.parametrize("clients", [100, pytest.param(2000, marks=pytest.mark.slow)])
async def test_clients_that_leave_leave_nothing_behind(card: ModelCard, clients: int) -> None:
    luck = random.Random(3)
    async with client_of(card) as client:
        while (await client.stats()).counts.cancelled < clients:  # some leave before their request is read
            leaving = (luck.choice([leave_a_stream, leave_a_whole]) for _ in range(AT_ONCE))
            await asyncio.gather(*(leave(client, luck) for leave in leaving))
        stats = await settled(client)
        assert stats.pages.used == 0
        assert stats.counts.failed == stats.counts.refused == 0
        assert (await client.generate("a", max_tokens=5)).text == "bcdef"


# --- who is too many


async def test_a_queue_beyond_its_bound_says_when_to_come_again(card: ModelCard) -> None:
    """Each request takes half the memory, so that two at a time are answered while four may wait."""
    async with client_of(card, replace(BOUNDS, max_waiting=4)) as client:
        asking = [client.generate(f"{letter}{'a' * 219}", max_tokens=36) for letter in 4 * LETTERS]
        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        answers = [outcome for outcome in outcomes if isinstance(outcome, Completion)]
        refusals = [outcome for outcome in outcomes if isinstance(outcome, OverloadedError)]
        assert len(answers) + len(refusals) == len(asking)
        assert len(answers) >= 4
        assert {len(answer.token_ids) for answer in answers} == {36}
        assert refusals
        assert refusals[0].message == "4 requests are waiting already, as many as may."
        assert f"Try again in about {refusals[0].retry_after_s} s" in str(refusals[0])
        stats = await settled(client)
        assert (stats.counts.refused, stats.counts.length, stats.pages.used) == (len(refusals), len(answers), 0)


async def test_chats_beyond_what_is_prepared_at_once_are_told_when_to_come_again_and_counted(card: ModelCard) -> None:
    async with client_of(card) as client:
        asking = [client.chat([{"role": "user", "content": "hi"}], max_tokens=1) for _ in range(4 * MAX_WAITING)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
        assert len(refused) >= 1
        assert all(error.retry_after_s > 0 for error in refused)
        assert (await settled(client)).counts.refused == len(refused)


async def test_a_request_that_can_never_fit_is_refused_with_the_numbers(card: ModelCard) -> None:
    async with client_of(card) as client:
        with pytest.raises(PromptTooLongError, match=r"300 tokens; the context holds 256.*longer context"):
            await client.generate("a" * 300, max_tokens=4)
        stats = await client.stats()
        assert (stats.counts.refused, stats.pages.used) == (1, 0)


# --- who comes again


async def test_the_second_turn_of_a_chat_finds_the_first_one_computed(card: ModelCard) -> None:
    async with client_of(card) as client:
        turns = [{"role": "user", "content": "hello world, tell me of the sea"}]
        first = await client.chat(turns, max_tokens=8)
        before = (await settled(client)).pages
        assert before.hit_tokens == 0
        turns += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "go on"}]
        second = await client.chat(turns, max_tokens=8)
        after = (await settled(client)).pages
        known = first.finished.usage.prompt_tokens // PAGE_TOKENS * PAGE_TOKENS
        assert known > 0
        assert known <= after.hit_tokens < second.finished.usage.prompt_tokens
        assert after.used == 0
