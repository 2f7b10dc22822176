"""The client for an event loop against a coordinator on loopback."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator

import pytest

from layerline import AsyncClient, NoCoordinatorError, NodeLostError, Ready, RequestError, UsageError
from tests.fakes.coordinator_service import (
    ANSWER,
    FINISHED,
    MODELS,
    NODES,
    PLAN,
    PREPARING,
    SCORES,
    TWO_ANSWERS,
    FakeCoordinator,
    Hang,
)

HI = [{"role": "user", "content": "Hi"}]
WAIT_S = 20


@pytest.fixture
async def client(address: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(address) as client:
        yield client


async def test_a_chat_gives_the_whole_answer(client: AsyncClient) -> None:
    completion = await client.chat(HI)
    assert (completion.text, completion.token_ids, completion.finished) == ("Paris.", (1, 2, 3), FINISHED)


async def test_a_stream_gives_pieces_and_then_how_it_finished(client: AsyncClient) -> None:
    stream = client.generate("Once", stream=True)
    assert [stream.finished] == [None]
    assert [piece async for piece in stream] == list(ANSWER[:2])
    assert stream.finished == FINISHED
    assert [piece async for piece in stream] == []


async def test_several_answers_come_with_the_first(client: AsyncClient, fake: FakeCoordinator) -> None:
    fake.answers = [TWO_ANSWERS]
    first = await client.generate("Once", n=2)
    assert [first.text, *(other.text for other in first.others)] == ["Paris.", "Lyon"]
    stream = client.chat(HI, stream=True, n=2)
    assert [piece.index async for piece in stream] == [0, 1, 0]
    assert stream.finished == FINISHED
    assert [finished.seed for finished in stream.all_finished] == [42, 43]


async def test_the_scores_of_a_text_come_window_by_window(client: AsyncClient, fake: FakeCoordinator) -> None:
    windows = client.score("Once", window_tokens=4)
    assert tuple([window async for window in windows]) == SCORES[:2]
    assert windows.finished == SCORES[2]
    assert fake.scored[0].window_tokens == 4


async def test_leaving_a_text_early_cancels_it(client: AsyncClient, fake: FakeCoordinator) -> None:
    fake.scores = (SCORES[0], Hang())
    async with client.score("Once") as windows:
        assert await anext(windows) == SCORES[0]
    assert await asyncio.to_thread(fake.cancelled.get, timeout=WAIT_S) == "cancelled"


async def test_reports_come_as_nouns(client: AsyncClient, fake: FakeCoordinator) -> None:
    assert await client.nodes() == NODES
    assert await client.models() == MODELS
    assert await client.plan("tiny") == PLAN
    assert await client.describe() == await client.connect() == fake.facts


async def test_preparing_tells_how_far_it_is(client: AsyncClient) -> None:
    events = client.prepare("tiny")
    assert tuple([event async for event in events]) == PREPARING
    assert events.finished == Ready(plan=PLAN)


async def test_an_error_in_the_middle_of_a_stream_comes_after_its_pieces(
    client: AsyncClient, fake: FakeCoordinator
) -> None:
    fake.answers = [(ANSWER[0], NodeLostError("Node cellar is gone.", node="cellar"))]
    stream = client.chat(HI, stream=True)
    assert await anext(stream) == ANSWER[0]
    with pytest.raises(NodeLostError, match="cellar is gone"):
        await anext(stream)


async def test_breaking_out_of_the_loop_cancels_the_request(client: AsyncClient, fake: FakeCoordinator) -> None:
    fake.answers = [(*ANSWER[:1], Hang())]
    gc.disable()
    try:
        async for piece in client.chat(HI, stream=True):
            assert piece == ANSWER[0]
            break
        assert await asyncio.to_thread(fake.cancelled.get, timeout=WAIT_S) == "cancelled"
    finally:
        gc.enable()


async def test_cancelling_the_task_that_reads_cancels_the_request(client: AsyncClient, fake: FakeCoordinator) -> None:
    fake.answers = [(Hang(),)]
    reading = asyncio.ensure_future(client.chat(HI))
    await asyncio.to_thread(fake.hung.get, timeout=WAIT_S)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await asyncio.to_thread(fake.cancelled.get, timeout=WAIT_S) == "cancelled"


async def test_a_stream_closed_by_another_task_ends(client: AsyncClient, fake: FakeCoordinator) -> None:
    fake.answers = [(Hang(),)]
    async with client.chat(HI, stream=True) as stream:
        reading = asyncio.ensure_future(anext(stream, None))
        await asyncio.to_thread(fake.hung.get, timeout=WAIT_S)
        stream.close()
        assert await reading is None


async def test_a_stream_closed_while_it_connects_asks_nothing(address: str, fake: FakeCoordinator) -> None:
    client = AsyncClient(address)
    stream = client.chat(HI, stream=True)
    reading = asyncio.ensure_future(anext(stream, None))
    await asyncio.sleep(0)  # it waits for the greeting now
    stream.close()
    assert await reading is None
    assert fake.asked == []
    await client.close()


async def test_closing_the_client_is_an_error_for_every_call_under_way(client: AsyncClient) -> None:
    asking = [asyncio.ensure_future(call) for call in (client.nodes(), client.chat(HI), anext(client.prepare("tiny")))]
    await asyncio.sleep(0)  # they wait for answers now
    await client.close()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(outcome) for outcome in outcomes] == ["The request was cancelled. Ask again."] * 3


async def test_closing_the_client_ends_a_stream_that_nobody_reads(client: AsyncClient, fake: FakeCoordinator) -> None:
    fake.answers = [(ANSWER[0], Hang())]
    stream = client.chat(HI, stream=True)
    assert await anext(stream) == ANSWER[0]
    await client.close()
    with pytest.raises(RequestError, match="cancelled"):
        await anext(stream)


async def test_a_task_that_is_cancelled_while_the_client_is_closed_is_cancelled(client: AsyncClient) -> None:
    asking = [asyncio.ensure_future(call) for call in (client.nodes(), client.chat(HI))]
    await asyncio.sleep(0)  # they wait for answers now
    for task in asking:
        task.cancel()
    await client.close()
    await asyncio.wait(asking)
    assert [task.cancelled() for task in asking] == [True, True]


async def test_many_tasks_share_one_client(address: str, fake: FakeCoordinator) -> None:
    async with AsyncClient(address) as client:
        completions = await asyncio.gather(*(client.chat(HI) for _ in range(24)))
    assert [completion.text for completion in completions] == ["Paris."] * 24


async def test_nobody_at_the_address_says_how_to_start_a_coordinator() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        client = AsyncClient(f"127.0.0.1:{unheard.getsockname()[1]}")
        with pytest.raises(NoCoordinatorError, match="layerline coordinator --model"):
            await client.nodes()


async def test_a_closed_client_says_so(address: str) -> None:
    client = AsyncClient(address)
    await client.close()
    with pytest.raises(UsageError, match="closed"):
        await client.chat(HI)
