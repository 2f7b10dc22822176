"""The one place for the options of channels and servers, each with its reason, and for making servers.

Liveness rests on the keepalive triple: a peer that is frozen or unplugged is noticed after at most
KEEPALIVE_TIME_MS and the timeout, a killed one at once. The third of the triple, `grpc.http2.ping_timeout_ms`, is
needed because its default of a minute would win over the timeout. Between the machines of a pipeline the timeout is
short, so that the others need not wait for a frozen one; between a client and its coordinator a pause of either, as of
a suspended laptop, is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

from layerline.hosting.descriptors import most_connections
from layerline.rpc.malformed import MalformedRequests

KEEPALIVE_TIME_MS = 3_000
KEEPALIVE_TIMEOUT_MS = 4_000
CLIENT_KEEPALIVE_TIMEOUT_MS = 11_000  # a pause of 10 s is no loss
MAX_MESSAGE_BYTES = 8 << 20  # a frame holds at most 6 MiB of tensor; see layerline.frames
MAX_METADATA_BYTES = 64 << 10
MAX_CONCURRENT_RPCS = 1_024
MAX_IDLE_MS = 5_000
HANDSHAKE_TIMEOUT_MS = 5_000

Options = list[tuple[str, int]]


def _both_sides(timeout_ms: int) -> Options:
    return [
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),  # otherwise pings stop after two on an idle stream
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        (
            "grpc.max_metadata_size",
            MAX_METADATA_BYTES,
        ),  # errors travel there; the default of 8 KiB would drop long ones
    ]


_DIALLING: Options = [
    ("grpc.enable_http_proxy", 0),  # a proxy set for the web must not be asked for machines of the LAN
    ("grpc.use_local_subchannel_pool", 1),  # one connection a channel: its peer address is an identity
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # also how long one connection attempt may take
    ("grpc.max_reconnect_backoff_ms", 2_000),  # the default waits up to two minutes
]
_LISTENING: Options = [
    # Must be under the other side's keepalive time, or the server ends the connection with "Too many pings".
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second listener
]

CLIENT_OPTIONS: Options = [*_both_sides(CLIENT_KEEPALIVE_TIMEOUT_MS), *_DIALLING]
COORDINATOR_OPTIONS: Options = [*_both_sides(CLIENT_KEEPALIVE_TIMEOUT_MS), *_LISTENING]
PIPELINE_OPTIONS: Options = [*_both_sides(KEEPALIVE_TIMEOUT_MS), *_DIALLING]
NODE_OPTIONS: Options = [*_both_sides(KEEPALIVE_TIMEOUT_MS), *_LISTENING]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionBounds:
    """What connections a server has at most, and how long one that does nothing may stay."""

    most: int
    idle_ms: int = MAX_IDLE_MS  # without a call; a client's channel connects anew with its next one
    handshake_ms: int = HANDSHAKE_TIMEOUT_MS  # until it speaks HTTP/2

    @property
    def options(self) -> Options:
        """As gRPC has them."""
        return [
            ("grpc.max_allowed_incoming_connections", self.most),
            ("grpc.max_connection_idle_ms", self.idle_ms),
            ("grpc.server_handshake_timeout_ms", self.handshake_ms),
        ]


def make_server(bounds: ConnectionBounds | None = None, *, options: Options = NODE_OPTIONS) -> grpc.aio.Server:
    """A server with no ports and no services yet; by default with connections as this process has descriptors for."""
    bounds = bounds or ConnectionBounds(most=most_connections())
    return grpc.aio.server(
        interceptors=(MalformedRequests(),),
        options=[*options, *bounds.options],
        maximum_concurrent_rpcs=MAX_CONCURRENT_RPCS,
    )
