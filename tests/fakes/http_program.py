"""A coordinator's HTTP on a socket of this machine, and what a program gets of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from coordinator.coordinator import Coordinator
from coordinator.http.activity import Activity
from coordinator.http.app import make_app
from coordinator.http.live import Live
from coordinator.http.server import http_served
from coordinator.http_settings import HttpSettings
from layerline.addresses import split_address

DEADLINE_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Got:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """What OpenAI's form tells of a failure."""
        found: dict[str, Any] = self.json["error"]
        return found

    @property
    def events(self) -> list[str]:
        """What server-sent events have, in order."""
        lines = self.body.decode().splitlines()
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


class Program:
    """Asks the server at `url`, a connection for each request."""

    def __init__(self, url: str, activity: Activity) -> None:
        self.url = url
        self.activity = activity
        self.address = url.partition("//")[2]

    async def get(self, path: str, **headers: str) -> Got:
        """GET."""
        return await self.send("GET", path, b"", headers)

    async def post(self, path: str, body: Any, **headers: str) -> Got:
        """POST of JSON, or of bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.send("POST", path, data, headers)

    async def send(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Got:
        """A request as it is told."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await self.begin(method, path, body, headers)
            try:
                return await response(reader)
            finally:
                writer.close()

    async def status(self, method: str, path: str, headers: Mapping[str, str]) -> int:
        """That of a request with an empty object, of which nothing more is read: some responses have no end."""
        async with asyncio.timeout(DEADLINE_S):
            reader, writer = await self.begin(method, path, b"{}", headers)
            try:
                return int((await reader.readline()).split()[1])
            finally:
                writer.transport.abort()

    async def begin(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, length: int = -1
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request of which the response has not been read; `length` is what it says of its body, if not the truth."""
        reader, writer = await asyncio.open_connection(*split_address(self.address))
        told = {"host": self.address, "content-length": str(len(body) if length < 0 else length), "connection": "close"}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items() if value)
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return reader, writer


async def response(reader: asyncio.StreamReader) -> Got:
    """The response that comes, to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    data = await reader.read()
    if headers.get("transfer-encoding") == "chunked":
        data = b"".join(_chunks(data))
    return Got(status=int(first.split()[1]), headers=headers, body=data)


def _chunks(data: bytes) -> list[bytes]:
    found = []
    while data:
        size, _, data = data.partition(b"\r\n")
        found.append(data[: int(size, 16)])
        data = data[int(size, 16) + 2 :]
    return found


@asynccontextmanager
async def http_of(coordinator: Coordinator, **settings: Any) -> AsyncIterator[Program]:
    """The HTTP of a coordinator, for programs of this machine."""
    activity = Activity()
    told = HttpSettings(host="127.0.0.1", port=0, **settings)
    async with (
        Live(coordinator, activity) as live,
        http_served(told, make_app(coordinator, told, activity, live)) as url,
    ):
        yield Program(url, activity)
