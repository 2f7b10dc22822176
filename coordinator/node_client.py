"""Questions to a node that need no hold: what it is, and the card of a model it has."""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from layerline.errors import ModelCorruptError, NodeLostError, NodeUnreachableError
from layerline.facts import NodeFacts
from layerline.models.card import MAX_CARD_BYTES, ModelCard
from layerline.rpc.channels import open_channel
from layerline.rpc.convert import from_message
from layerline.rpc.status import connection_failure, error_from_rpc
from layerline.rpc.v1 import node_pb2, node_pb2_grpc
from layerline.version import WIRE_VERSION

DESCRIBE_DEADLINE_S = 2.0
OPEN_MODEL_DEADLINE_S = 900.0  # a large file is hashed once, at the speed of its disk


async def describe(address: str) -> NodeFacts:
    """The facts of the node at `address`; NodeUnreachableError or ProtocolError if there is none."""
    async with open_channel(address) as channel:
        stub = node_pb2_grpc.NodeStub(channel)
        request = node_pb2.DescribeRequest(wire_version=WIRE_VERSION)
        try:
            return from_message(NodeFacts, await stub.Describe(request, timeout=DESCRIBE_DEADLINE_S))
        except grpc.aio.AioRpcError as failure:
            error = error_from_rpc(failure, peer=address)
            if isinstance(error, NodeLostError):
                raise NodeUnreachableError(f"{address}: {connection_failure(failure.details())}") from None
            raise error from None


async def open_model(address: str, node: str, model: str, on_progress: Callable[[int, int], None]) -> ModelCard:
    """The card of `model` on a node; `on_progress(done_bytes, total_bytes)` while its files are indexed.

    Raises what the node says of the files (not found, corrupt, unsupported), with the node named.
    """
    card = bytearray()
    async with open_channel(address) as channel:
        call = node_pb2_grpc.NodeStub(channel).OpenModel(
            node_pb2.OpenModelRequest(model=model), timeout=OPEN_MODEL_DEADLINE_S
        )
        try:
            async for event in call:
                if event.HasField("progress"):
                    on_progress(event.progress.done_bytes, event.progress.total_bytes)
                card += event.card_chunk
                if len(card) > MAX_CARD_BYTES:
                    raise ModelCorruptError(f"The card of model {model} on node {node} is too large.", node=node)
        except grpc.aio.AioRpcError as failure:
            raise error_from_rpc(failure, peer=f"node {node} at {address}", node=node) from None
    try:
        return ModelCard.from_bytes(bytes(card))
    except ValueError as error:
        raise ModelCorruptError(f"Node {node} sent a card of model {model} that is {error}.", node=node) from None
