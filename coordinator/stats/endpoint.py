"""Serves the metrics over HTTP to Prometheus: GET /metrics and nothing else, within strict limits.

A connection has one exchange. A request that is too long, malformed or slow gets a refusal at most, and so does one
connection too many; the coordinator's own work goes on.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from coordinator.stats.metric import CONTENT_TYPE
from layerline.addresses import join_address
from layerline.errors import LayerlineError, PortInUseError, UsageError

PATH = "/metrics"
MAX_HEAD_BYTES = 4096  # request line and headers
MAX_CONNECTIONS = 16
EXCHANGE_DEADLINE_S = 2.0

_REQUEST_LINE = re.compile(rb"([A-Z]+) (\S+) HTTP/1\.[01]")


class MetricsEndpoint:
    """Answers connections with what `text` returns. Made by `metrics_endpoint`."""

    def __init__(self, text: Callable[[], str], exchange_deadline_s: float) -> None:
        self._text = text
        self._exchange_deadline_s = exchange_deadline_s
        self._exchanges: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection, from its request to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._exchanges[task] = writer
        try:
            async with asyncio.timeout(self._exchange_deadline_s):
                writer.write(await self._response(reader))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):  # it is slow, or has left
            pass
        finally:
            del self._exchanges[task]
            writer.transport.abort()

    async def close(self) -> None:
        """Ends every exchange by closing its connection, because Python 3.11 logs a cancelled one as an error."""
        exchanges = dict(self._exchanges)
        for writer in exchanges.values():
            writer.transport.abort()
        if exchanges:
            await asyncio.wait(exchanges)

    async def _response(self, reader: asyncio.StreamReader) -> bytes:
        if len(self._exchanges) > MAX_CONNECTIONS:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return _refusal(HTTPStatus.BAD_REQUEST)
        line = _REQUEST_LINE.fullmatch(head.partition(b"\r\n")[0])
        if line is None or line[1] != b"GET":
            return _refusal(HTTPStatus.BAD_REQUEST)
        if line[2].partition(b"?")[0] != PATH.encode():
            return _refusal(HTTPStatus.NOT_FOUND)
        return _message(HTTPStatus.OK, CONTENT_TYPE, self._text())


@asynccontextmanager
async def metrics_endpoint(
    host: str, port: int, text: Callable[[], str], *, exchange_deadline_s: float = EXCHANGE_DEADLINE_S
) -> AsyncIterator[str]:
    """Serves `text` for the time of the block, on any free port for `port` 0; yields the host:port.

    Raises PortInUseError if something else has the port, UsageError if it cannot be had for another reason.
    """
    endpoint = MetricsEndpoint(text, exchange_deadline_s)
    try:
        server = await asyncio.start_server(endpoint.attend, host, port, limit=MAX_HEAD_BYTES)
    except OSError as error:
        raise _not_ours(join_address(host, port), error) from None
    try:
        yield join_address(host, server.sockets[0].getsockname()[1])
    finally:
        server.close()
        await endpoint.close()
        await server.wait_closed()


def _not_ours(address: str, error: OSError) -> LayerlineError:
    kind = PortInUseError if error.errno == errno.EADDRINUSE else UsageError
    why = error.strerror or str(error)
    return kind(f"Metrics cannot be served at {address} ({why}).", remedy="Choose another address with --metrics.")


def _refusal(status: HTTPStatus) -> bytes:
    return _message(status, "text/plain; charset=utf-8", f"{status.phrase}\n")


def _message(status: HTTPStatus, content_type: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body
