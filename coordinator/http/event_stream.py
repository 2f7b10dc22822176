"""Server-sent events, and work that ends when its client goes.

Source: the HTML standard, section 9.2, Server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive, Scope, Send

from coordinator.concurrency import ended

KEEP_ALIVE_S = 15.0
STUCK_S = 120.0  # a client that takes nothing for so long has left
FIRST_ITEM_S = 5.0  # what is refused is refused by then; a long prompt takes longer

Done = TypeVar("Done")
Item = TypeVar("Item")


def event(data: Any, name: str = "") -> bytes:
    """One event with JSON in it."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


class EventStream:
    """A response of `events`, which are closed once the client goes or takes nothing any more.

    Only as much is made as the client takes, beside what the connection holds.
    """

    def __init__(self, events: AsyncGenerator[bytes, None], *, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._events = events
        self._keep_alive_s = keep_alive_s
        self._begun = False
        self._sent = 0
        self._sending_s = 0.0  # since when, on the loop's clock; 0 while nothing is being sent

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        assert scope["type"] == "http"
        tasks = [asyncio.create_task(work) for work in (self._write(send), _left(receive), self._keep_alive(send))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await ended(*tasks)
            await self._events.aclose()
        for task in done:
            task.result()

    async def _write(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._begun = True
        async with aclosing(self._events) as events:
            async for each in events:
                await self._send(send, {"type": "http.response.body", "body": each, "more_body": True})
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, message: Message) -> None:
        self._sending_s = asyncio.get_running_loop().time()
        await send(message)
        self._sending_s = 0.0
        self._sent += 1

    async def _keep_alive(self, send: Send) -> None:
        """Lets a client and what is between know that it goes on; returns if the client takes nothing."""
        while True:
            before = self._sent
            await asyncio.sleep(self._keep_alive_s)
            if self._sending_s and asyncio.get_running_loop().time() - self._sending_s > STUCK_S:
                return
            if self._sent == before and not self._sending_s and self._begun:
                await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})


async def begun(items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
    """`items`, of which the first has come, so that a refusal is a status and not an event in a stream.

    Where the first takes long it is not waited for any more: the client then hears that its request is worked on.
    """
    first = asyncio.create_task(_first(items))
    try:
        await asyncio.wait({first}, timeout=FIRST_ITEM_S)
        if first.done():
            first.result()
    except BaseException:
        await ended(first)
        await items.aclose()
        raise
    return _from(first, items)


async def _first(items: AsyncGenerator[Item, None]) -> list[Item]:
    async for item in items:
        return [item]
    return []


async def _from(first: asyncio.Task[list[Item]], items: AsyncGenerator[Item, None]) -> AsyncGenerator[Item, None]:
    try:
        for item in await first:
            yield item
        async for item in items:
            yield item
    finally:
        await ended(first)
        await items.aclose()


async def unless_left(request: Request, work: Coroutine[Any, Any, Done]) -> Done:
    """What `work` comes to; it is cancelled if the client goes meanwhile, and ClientDisconnect raised.

    The body must have been read.
    """
    task, leaving = asyncio.create_task(work), asyncio.create_task(_left(request.receive))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        await ended(task, leaving)


async def _left(receive: Receive) -> None:
    """Returns once the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
