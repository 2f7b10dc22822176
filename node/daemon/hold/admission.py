"""Admits one coordinator at a time to the hold on this node; the others are told who has it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from layerline.addresses import is_loopback, join_address, split_address
from layerline.errors import NodeDrainingError, NodeHeldError, ProtocolError, WireVersionError
from layerline.facts import Holder
from layerline.hold import HEARTBEATS, Heartbeats, HoldHello
from layerline.rpc.callers import Callers
from layerline.version import WIRE_VERSION
from node.daemon.hold.hold import Hold, Wire
from node.daemon.stages.keeper import StageKeeper

HELLO_DEADLINE_S = 5.0
MAX_UNKNOWN_OF_ONE = 8  # machine, of holds whose coordinator has not said who it is
HANDOVER_DEADLINE_S = 1.0  # the news that a coordinator has left may come after the hello of the next one

log = logging.getLogger(__name__)


class HoldAdmission:
    """Grants the hold on one node."""

    def __init__(self, keeper: StageKeeper, *, node: str, node_id: str, heartbeats: Heartbeats = HEARTBEATS) -> None:
        self._keeper = keeper
        self._node = node
        self._node_id = node_id
        self._heartbeats = heartbeats
        self._hold: Hold | None = None
        self._unknown = Callers(MAX_UNKNOWN_OF_ONE)
        self._free = asyncio.Event()
        self._free.set()
        self.holder: Holder | None = None
        self.draining = False

    async def attend(self, wire: Wire, address: str) -> None:
        """Serves a coordinator at `address` from its hello to the end of its hold; raises what is against it."""
        with self._unknown.one_more(address):
            hello = await self._hello(wire)
        self._check_version(hello, address)
        is_local = is_loopback(split_address(address)[0])
        hold = Hold(
            wire,
            self._keeper,
            node=self._node,
            node_id=self._node_id,
            is_local=is_local,
            heartbeats=self._heartbeats,
        )
        async with self._granted(hold, _holder(hello, address)):
            await hold.run()

    async def drain(self, deadline_s: float) -> None:
        """Grants nothing any more, tells the holder, and gives it until the deadline to leave by itself."""
        self.draining = True
        if self._hold is None:
            return
        self._hold.drain()
        try:
            async with asyncio.timeout(deadline_s):
                await self._free.wait()
        except TimeoutError:
            log.warning("The coordinator did not leave within %.0f s.", deadline_s)

    async def _hello(self, wire: Wire) -> HoldHello:
        try:
            async with asyncio.timeout(HELLO_DEADLINE_S):
                hello = await wire.read()
        except TimeoutError:
            raise ProtocolError(f"No hello came within {HELLO_DEADLINE_S:.0f} s.", node=self._node) from None
        if not isinstance(hello, HoldHello):
            raise ProtocolError("The first command on a hold was not a hello.", node=self._node)
        return hello

    def _check_version(self, hello: HoldHello, address: str) -> None:
        if hello.wire_version != WIRE_VERSION:
            raise WireVersionError(
                f"The coordinator {hello.coordinator} at {address} speaks wire version {hello.wire_version}, "
                f"node {self._node} speaks {WIRE_VERSION}.",
                node=self._node,
                remedy="Install the same version of layerline on both machines.",
            )

    @asynccontextmanager
    async def _granted(self, hold: Hold, holder: Holder) -> AsyncIterator[None]:
        await self._wait_for_handover()
        if self.draining:
            message = f"Node {self._node} is shutting down."
            raise NodeDrainingError(message, node=self._node, remedy="Start it again, or go on without it.")
        if self.holder:
            raise NodeHeldError(
                f"Node {self._node} is held by the coordinator {self.holder.coordinator} at {self.holder.address}.",
                node=self._node,
                remedy="End that coordinator, or use it with --coordinator.",
            )
        self._hold, self.holder = hold, holder
        self._free.clear()
        log.info("Held by %s at %s.", holder.coordinator, holder.address)
        try:
            yield
        finally:
            self._hold = self.holder = None
            self._free.set()
            log.info("No longer held by %s.", holder.coordinator)

    async def _wait_for_handover(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANDOVER_DEADLINE_S):
                await self._free.wait()


def _holder(hello: HoldHello, address: str) -> Holder:
    """Who holds, at an address that can be called if there is one: the host is the connection's, the port its own."""
    if hello.port:
        address = join_address(split_address(address)[0], hello.port)
    return Holder(
        coordinator=hello.coordinator, address=address, instance=hello.instance, takes_requests=hello.port > 0
    )
