"""A node's service on a real loopback port, with worker processes that compute nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from layerline.facts import NodeFacts
from layerline.rpc.channels import make_server
from layerline.rpc.transport import Transport
from layerline.rpc.v1 import node_pb2_grpc
from layerline.version import WIRE_VERSION, __version__
from node.daemon.hold.admission import HoldAdmission
from node.daemon.service import NodeService
from node.daemon.stages.keeper import StageKeeper
from node.daemon.stages.model_library import ModelLibrary
from tests.fakes.daemon_parts import make_keeper, process_workers, real_workers


@dataclass(frozen=True, kw_only=True)
class ServedNode:
    """A node that can be called at `address`."""

    address: str
    keeper: StageKeeper
    admission: HoldAdmission


@asynccontextmanager
async def served_node(folder: Path, mode: str = "good", *, computes: bool = False) -> AsyncIterator[ServedNode]:
    """A node whose models lie in folder/models.

    Its workers are of `mode` (see `tests.fakes.daemon_worker`), or those that compute what is in the models.
    """
    (folder / "work").mkdir()
    library = ModelLibrary(folder / "models", node="kitchen", cache=folder / "cache", work=folder / "work")
    keeper = make_keeper(real_workers, models=library) if computes else make_keeper(process_workers(mode))
    admission = HoldAdmission(keeper, node="kitchen", node_id="k1")

    async def describe() -> NodeFacts:
        return NodeFacts(
            node_id="k1",
            name="kitchen",
            version=__version__,
            wire_version=WIRE_VERSION,
            state="ready",
            models=library.listings(),
            loaded=keeper.loaded,
            held_by=admission.holder,
        )

    server = make_server()
    service = cast("node_pb2_grpc.NodeServicer", NodeService(describe, library, admission))
    node_pb2_grpc.add_NodeServicer_to_server(service, server)
    port = Transport().listen(server, "127.0.0.1:0")
    await server.start()
    try:
        yield ServedNode(address=f"127.0.0.1:{port}", keeper=keeper, admission=admission)
    finally:
        await server.stop(None)
        await keeper.close()
