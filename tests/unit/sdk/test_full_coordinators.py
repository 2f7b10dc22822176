"""A coordinator that cannot take a request because of its size, or because of how many others it has."""

from __future__ import annotations

import asyncio

import pytest

from layerline.errors import OverloadedError, ProtocolError, RequestError
from tests.fakes.full_coordinator_service import full_coordinator


async def test_a_coordinator_with_a_lower_bound_refuses_the_request_and_not_the_peer() -> None:
    async with full_coordinator(("grpc.max_receive_message_length", 1000)) as (client, _):
        with pytest.raises(RequestError, match=r"too long to be sent .* Shorten the prompt"):
            await client.generate("x" * 2000)


async def test_an_answer_over_the_bound_is_the_coordinators_fault() -> None:
    async with full_coordinator() as (client, _):
        with pytest.raises(ProtocolError, match="too large"):
            await client.models()


async def test_a_coordinator_that_has_as_many_calls_as_it_may_is_busy() -> None:
    async with full_coordinator(rpcs=1) as (client, service):
        first = asyncio.create_task(client.generate("a"))
        await service.asked.wait()
        with pytest.raises(OverloadedError, match="takes no further call now") as raised:
            await client.generate("b")
        assert raised.value.retry_after_s == 1
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
