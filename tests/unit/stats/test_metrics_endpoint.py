"""The endpoint serves its text to who asks rightly, and refuses everything else without harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coordinator.stats.endpoint import MAX_CONNECTIONS, MAX_HEAD_BYTES, metrics_endpoint
from layerline.addresses import split_address
from layerline.errors import PortInUseError, UsageError

TEXT = "layerline_model_loaded 1\n# é\n"
ASK = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"
TEST_DEADLINE_S = 20.0


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with asyncio.timeout(TEST_DEADLINE_S), metrics_endpoint("127.0.0.1", 0, lambda: TEXT) as address:
        yield address


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(*split_address(address))


async def answered(address: str, request: bytes, *, ends: bool = False) -> tuple[str, bytes]:
    """The status line and the body; `ends` tells the other side that no more comes."""
    reader, writer = await connect(address)
    try:
        writer.write(request)
        if ends:
            writer.write_eof()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *headers = head.decode().split("\r\n")
    assert f"Content-Length: {len(body)}" in headers or not head
    return status, body


async def cut_off(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends the connection without a word."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("request_", [ASK, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"])
async def test_the_text_is_served_as_it_is(address: str, request_: bytes) -> None:
    assert await answered(address, request_) == ("HTTP/1.1 200 OK", TEXT.encode())
    assert await answered(address, request_) == ("HTTP/1.1 200 OK", TEXT.encode())


async def test_the_content_type_names_the_format(address: str) -> None:
    reader, writer = await connect(address)
    writer.write(ASK)
    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in await reader.read()
    writer.close()


@pytest.mark.parametrize("path", [b"/", b"/metrics/", b"/metricsx", b"/../metrics", b"http://here/metrics"])
async def test_there_is_nothing_else(address: str, path: bytes) -> None:
    status, _ = await answered(address, b"GET " + path + b" HTTP/1.1\r\n\r\n")
    assert status == "HTTP/1.1 404 Not Found"


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/2.0\r\n\r\n",
        b"GET  /metrics HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET /" + b"x" * (MAX_HEAD_BYTES + 100) + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_request_that_is_none_is_refused(address: str, request_: bytes) -> None:
    status, _ = await answered(address, request_)
    assert status == "HTTP/1.1 400 Bad Request"
    assert await answered(address, ASK) == ("HTTP/1.1 200 OK", TEXT.encode())


@pytest.mark.parametrize("request_", [b"", b"GET /metrics HT"])
async def test_who_leaves_in_the_middle_is_refused(address: str, request_: bytes) -> None:
    status, _ = await answered(address, request_, ends=True)
    assert status == "HTTP/1.1 400 Bad Request"


async def test_who_is_slow_is_cut_off() -> None:
    hurried = metrics_endpoint("127.0.0.1", 0, lambda: TEXT, exchange_deadline_s=0.05)
    async with asyncio.timeout(TEST_DEADLINE_S), hurried as address:
        reader, writer = await connect(address)
        writer.write(b"GET /metrics HTTP/1.1\r\n")
        assert await cut_off(reader)
        writer.close()


async def test_one_connection_too_many_is_refused_and_there_is_room_again_once_one_has_left(address: str) -> None:
    kept = [await connect(address) for _ in range(MAX_CONNECTIONS)]
    status, _ = await answered(address, b"")
    assert status == "HTTP/1.1 503 Service Unavailable"
    reader, writer = kept[0]
    writer.write(ASK)
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
    assert await answered(address, ASK) == ("HTTP/1.1 200 OK", TEXT.encode())
    for _, writer in kept:
        writer.close()


async def test_the_end_does_not_wait_for_who_is_connected() -> None:
    patient = metrics_endpoint("127.0.0.1", 0, lambda: TEXT, exchange_deadline_s=2 * TEST_DEADLINE_S)
    async with asyncio.timeout(TEST_DEADLINE_S):
        async with patient as address:
            reader, writer = await connect(address)
            assert await answered(address, ASK)  # by then the other connection is attended to, too
        assert await cut_off(reader)
        writer.close()
    with pytest.raises(ConnectionRefusedError):
        await connect(address)


async def test_a_port_that_another_has_is_named(address: str) -> None:
    with pytest.raises(PortInUseError, match=f"{address}.*--metrics"):
        async with metrics_endpoint(*split_address(address), lambda: TEXT):
            pass


async def test_a_host_that_is_not_this_machines_is_named() -> None:
    with pytest.raises(UsageError, match=r"192\.0\.2\.1"):
        async with metrics_endpoint("192.0.2.1", 9, lambda: TEXT):
            pass
