"""The application on a socket, by uvicorn in the coordinator's own event loop.

Bounds what uvicorn leaves open: connections, and the time in which a request must have begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.concurrency import ended, outlasted
from coordinator.http_settings import HttpSettings
from layerline.errors import PortInUseError, UsageError

MAX_CONNECTIONS = 4096
HEAD_DEADLINE_S = 60.0  # from a connection to its first request
MAX_HEAD_BYTES = 64 << 10
KEEP_ALIVE_S = 120
CLOSE_DEADLINE_S = 1
BACKLOG = 1024


class _Connection(H11Protocol):
    """One connection, closed if it says nothing for long, or is one too many."""

    def connection_made(self, transport: Any) -> None:
        """Takes it."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
            return
        self._head_deadline = self.loop.call_later(HEAD_DEADLINE_S, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets it."""
        if hasattr(self, "_head_deadline"):
            self._head_deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The next request has as long to begin, and no longer."""
        super().on_response_complete()
        self._head_deadline.cancel()
        self._head_deadline = self.loop.call_later(KEEP_ALIVE_S, self._close_if_silent)

    def _close_if_silent(self) -> None:
        cycle = self.cycle
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.abort()


class _Server(uvicorn.Server):
    """Leaves signals to the coordinator; `is_up` is set once it takes connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Takes connections from now on."""
        await super().startup(sockets=sockets)
        self.is_up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes none."""
        yield


@asynccontextmanager
async def http_served(settings: HttpSettings, app: ASGIApp) -> AsyncIterator[str]:
    """Serves `app` for the time of the block; yields its address, scheme://host:port.

    Raises PortInUseError if something else has the port, UsageError if it cannot be had for another reason.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with _bound(settings) as listening:
        server = _Server(_config(settings, app))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            up = asyncio.create_task(server.is_up.wait())
            await asyncio.wait((serving, up), return_when=asyncio.FIRST_COMPLETED)
            await ended(up)
            if serving.done():
                serving.result()
            host, port = listening.getsockname()[:2]
            yield f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        finally:
            server.should_exit = True
            await outlasted(serving)


def _config(settings: HttpSettings, app: ASGIApp) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_DEADLINE_S,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ssl_certfile=settings.cert or None,
        ssl_keyfile=settings.cert_key or None,
    )
    config.load()
    return config


def _bound(settings: HttpSettings) -> socket.socket:
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--http {settings.address} is not an address ({error.strerror or error}).") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        kind_of = PortInUseError if error.errno == errno.EADDRINUSE else UsageError
        why = error.strerror or str(error)
        message = f"HTTP cannot be served at {settings.address} ({why})."
        raise kind_of(message, remedy="Choose another address with --http, or --http off.") from None
    return listening
