"""How one process opens channels and ports: in the clear, or with the credentials it was given.

Each program makes one `Transport` where it puts its parts together, and hands it to whatever dials or listens. The only
module that knows whether a connection is encrypted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio

from layerline.rpc.channels import CLIENT_OPTIONS, PIPELINE_OPTIONS

UNIX = "unix:"

Options = Sequence[tuple[str, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """What this process shows those whom it dials, and those who dial it."""

    channel: grpc.ChannelCredentials
    server: grpc.ServerCredentials


@dataclass(frozen=True, slots=True)
class Transport:
    """Channels and ports with `credentials`; without any they are in the clear.

    A Unix socket always is: its file says who may use it. A channel connects on its first call.
    """

    credentials: Credentials | None = None

    def channel(self, address: str, options: Options = PIPELINE_OPTIONS) -> grpc.aio.Channel:
        """A channel to `address` (host:port, [v6]:port or unix:path), by default to a node's daemon or worker."""
        credentials = self._credentials_for(address)
        if credentials:
            return grpc.aio.secure_channel(address, credentials.channel, options=options)
        return grpc.aio.insecure_channel(address, options=options)

    def blocking_channel(self, address: str, options: Options = CLIENT_OPTIONS) -> grpc.Channel:
        """A channel for threads, by default a client's to its coordinator."""
        credentials = self._credentials_for(address)
        if credentials:
            return grpc.secure_channel(address, credentials.channel, options=options)
        return grpc.insecure_channel(address, options=options)

    def listen(self, server: grpc.aio.Server | grpc.Server, address: str) -> int:
        """Has `server` listen on `address` as well, port 0 being any; returns the port. RuntimeError if it cannot."""
        credentials = self._credentials_for(address)
        if credentials:
            return server.add_secure_port(address, credentials.server)
        return server.add_insecure_port(address)

    def _credentials_for(self, address: str) -> Credentials | None:
        return None if address.startswith(UNIX) else self.credentials
