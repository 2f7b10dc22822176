"""Questions to a node that need no hold: what it is, and the card of a model it has.

Nothing that a node answers is used before it is checked; what is not valid is an error that names the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import grpc.aio

from layerline.addresses import is_loopback, join_address, require_peer_address, split_address
from layerline.errors import DeadlineError, NodeLostError, NodeUnreachableError, ProtocolError
from layerline.facts import Holder, NodeFacts
from layerline.growth import GrowthDeadline
from layerline.models.card import MAX_CARD_BYTES, ModelCard
from layerline.peer import Peer
from layerline.rpc.convert import from_message
from layerline.rpc.status import connection_failure, error_from_rpc
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc
from layerline.version import WIRE_VERSION

DESCRIBE_DEADLINE_S = 2.0
OPEN_MODEL_DEADLINE_S = 900.0  # a large file is hashed once, at the speed of its disk
NO_GROWTH_DEADLINE_S = 30.0  # how long that may come no further


class NodeClient:
    """Asks nodes over `transport`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def describe(self, address: str) -> NodeFacts:
        """The facts of the node at `address`; NodeUnreachableError or ProtocolError if there is none."""
        await _reach(address)
        async with self._transport.channel(address) as channel:
            stub = node_pb2_grpc.NodeStub(channel)
            request = node_pb2.DescribeRequest(wire_version=WIRE_VERSION)
            try:
                facts = from_message(NodeFacts, await stub.Describe(request, timeout=DESCRIBE_DEADLINE_S))
            except grpc.aio.AioRpcError as failure:
                error = error_from_rpc(failure, peer=address)
                if isinstance(error, NodeLostError):
                    raise NodeUnreachableError(f"{address}: {connection_failure(failure.details())}") from None
                raise error from None
        addresses = tuple(told for told in facts.addresses if _may_be_dialled(told, address))
        return replace(facts, addresses=addresses, held_by=seen_from_here(facts.held_by, address))

    async def open_model(
        self,
        node: Peer,
        model: str,
        on_progress: Callable[[int, int], None],
        *,
        no_growth_s: float = NO_GROWTH_DEADLINE_S,
    ) -> ModelCard:
        """The card of `model` on a node; `on_progress(done_bytes, total_bytes)` while its files are indexed.

        Raises what the node says of the files (not found, corrupt, unsupported), DeadlineError if it comes no further
        for `no_growth_s`, and ProtocolError for what is no card; all with the node named.
        """
        card = await self._card_bytes(node, model, on_progress, no_growth_s)
        try:
            return await asyncio.to_thread(ModelCard.from_bytes, bytes(card))
        except ValueError as error:
            raise ProtocolError(
                f"Node {node.name} sent a card of model {model} that is {error}.", node=node.name
            ) from None

    async def _card_bytes(
        self, node: Peer, model: str, on_progress: Callable[[int, int], None], no_growth_s: float
    ) -> bytearray:
        card = bytearray()
        async with self._transport.channel(node.address) as channel:
            call = node_pb2_grpc.NodeStub(channel).OpenModel(
                node_pb2.OpenModelRequest(model=model), timeout=OPEN_MODEL_DEADLINE_S
            )
            try:
                async with asyncio.timeout(no_growth_s) as deadline:
                    growth = GrowthDeadline(deadline, no_growth_s)
                    async for event in call:
                        if event.HasField("progress"):
                            growth.reached(event.progress.done_bytes)
                            on_progress(event.progress.done_bytes, event.progress.total_bytes)
                        elif event.card_chunk:
                            growth.move_on()
                        card += event.card_chunk
                        if len(card) > MAX_CARD_BYTES:
                            raise ProtocolError(
                                f"The card of model {model} on node {node.name} is too large.", node=node.name
                            )
            except TimeoutError:
                message = f"Node {node.name} came no further with the files of model {model} for {no_growth_s:g} s."
                raise DeadlineError(message, node=node.name, remedy="Look at its log and its disk.") from None
            except grpc.aio.AioRpcError as failure:
                raise error_from_rpc(failure, peer=f"node {node}", node=node.name) from None
        return card


async def _reach(address: str) -> None:
    """Connects once, for next to nothing: of very many addresses most may be nobody's."""
    host, port = split_address(address)
    try:
        _, writer = await asyncio.open_connection(host, port)
    except (OSError, UnicodeError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise NodeUnreachableError(f"{address}: {why}") from None
    writer.close()


def seen_from_here(holder: Holder | None, asked: str) -> Holder | None:
    """The holder as it can be called from here: what is on the machine of a node that was asked there is there."""
    if holder is None or not holder.takes_requests:
        return holder
    if _is_here(holder.address):
        there = join_address(split_address(asked)[0], split_address(holder.address)[1])
        return replace(holder, address=there)
    return replace(holder, takes_requests=_may_be_dialled(holder.address, asked))


def _may_be_dialled(told: str, asked: str) -> bool:
    """Whether an address in the facts of a node that was asked at another may be dialled; a name may not."""
    try:
        require_peer_address(told, loopback=_is_here(asked))
    except ValueError:
        return False
    return True


def _is_here(address: str) -> bool:
    host, _ = split_address(address)
    try:
        return is_loopback(host)
    except ValueError:
        return host == "localhost"
