"""Clients with other keepalive, so that a test need not wait for that of real ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from layerline import Client
from layerline.rpc.channels import CLIENT_OPTIONS
from layerline.rpc.transport import Options, Transport


@dataclass(frozen=True)
class HurriedTransport(Transport):
    """Opens channels for threads with `changes` to their options."""

    changes: Mapping[str, int] = field(default_factory=dict)

    def blocking_channel(self, address: str, options: Options = CLIENT_OPTIONS) -> grpc.Channel:
        """As `Transport` has it."""
        return super().blocking_channel(address, [*{**dict(options), **self.changes}.items()])


def hurried_client(address: str, changes: Mapping[str, int]) -> Client:
    """A client that has not connected yet, with `changes` to the options of its channel."""
    client = Client(address)
    client._transport = HurriedTransport(changes=changes)
    return client
