"""A program that is a node of a later wire version: `python -m tests.lab.future_node HOST WIRE_VERSION`.

It advertises itself by mDNS and answers `Describe`, as every version does; it can do nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio
from zeroconf.asyncio import AsyncZeroconf

from layerline.facts import DeviceFacts, NodeFacts
from layerline.mdns import Advert
from layerline.rpc.channels import make_server
from layerline.rpc.convert import to_message
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2, node_pb2_grpc

NODE_ID = "fe" * 8
NAME = "future"
VERSION = "99.0.0"


class FutureNode:
    """Knows how to describe itself, and what else there is to ask it."""

    def __init__(self, wire_version: int) -> None:
        self._wire_version = wire_version

    async def Describe(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> node_pb2.NodeFacts:  # noqa: N802
        device = DeviceFacts(device="cpu", kind="cpu", name="later", total_bytes=1, free_bytes=1, budget_bytes=1 << 40)
        facts = NodeFacts(
            node_id=NODE_ID,
            name=NAME,
            version=VERSION,
            wire_version=self._wire_version,
            state="ready",
            devices=(device,),
        )
        return to_message(facts, node_pb2.NodeFacts)

    async def refuse(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """What it does to every other call."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "a later version does this otherwise")

    OpenModel = Hold = refuse


async def main() -> None:
    """Serves until it is ended."""
    host, wire_version = sys.argv[1], int(sys.argv[2])
    server = make_server()
    node: Any = FutureNode(wire_version)
    node_pb2_grpc.add_NodeServicer_to_server(node, server)
    port = Transport().listen(server, f"{host}:0")
    await server.start()
    advert = Advert(
        node_id=NODE_ID,
        name=NAME,
        version=VERSION,
        wire_version=wire_version,
        devices="",
        addresses=(f"{host}:{port}",),
    )
    await AsyncZeroconf(interfaces=[host]).async_register_service(advert.to_service())
    print(f"up {host}:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
