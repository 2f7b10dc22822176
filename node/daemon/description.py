"""What this node says of itself, put together at each question from those who know."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from layerline.facts import DeviceFacts, NodeFacts
from layerline.hosting.listening import Listening
from layerline.mdns import MAX_TXT_BYTES, Advert
from layerline.version import WIRE_VERSION, __version__
from node.daemon.devices import DeviceReading, Speed, device_facts, device_summary, shared_out
from node.daemon.hold_desk import HoldDesk
from node.daemon.identity import Identity
from node.daemon.model_library import ModelLibrary
from node.daemon.settings import NodeSettings
from node.daemon.stage_keeper import StageKeeper
from node.daemon.system_devices import SystemDevices


class DeviceWatch:
    """The devices in use, as they are now, and what was measured of them: nothing until `measured`."""

    def __init__(self, settings: NodeSettings, system: SystemDevices, devices: tuple[str, ...]) -> None:
        self.threads = settings.threads_of(devices)
        self.measured = False
        self.speeds: Mapping[str, Speed] = {}
        self.all_reduce_us = 0.0
        self._memory_bytes = settings.memory_bytes
        self._system = system
        self._devices = devices

    def readings(self) -> tuple[DeviceReading, ...]:
        """What they are and have; parts of the CPU have their parts of its memory."""
        return shared_out([self._system.read(device) for device in self._devices], self.threads)

    def facts(self, own_bytes: Mapping[str, int]) -> tuple[DeviceFacts, ...]:
        """What they are, have, and may give to models; what this node's own stage takes on each counts as free."""
        return device_facts(
            self.readings(),
            memory_bytes=self._memory_bytes,
            threads=self.threads,
            speeds=self.speeds,
            own_bytes=own_bytes,
        )


class Description:
    """The node's facts and advert."""

    def __init__(
        self,
        identity: Identity,
        listening: Listening,
        devices: DeviceWatch,
        library: ModelLibrary,
        keeper: StageKeeper,
        desk: HoldDesk,
    ) -> None:
        self._identity = identity
        self._listening = listening
        self._devices = devices
        self._library = library
        self._keeper = keeper
        self._desk = desk

    async def facts(self) -> NodeFacts:
        """The answer to `Describe`."""
        models = await asyncio.to_thread(self._library.listings)
        loaded = self._keeper.loaded
        return NodeFacts(
            node_id=self._identity.node_id,
            name=self._identity.name,
            version=__version__,
            wire_version=WIRE_VERSION,
            state=self._state(),
            addresses=self._listening.addresses(),
            devices=self._devices.facts(self._keeper.own_bytes),
            models=models,
            loaded=(loaded,) if loaded else (),
            held_by=self._desk.holder,
            last_epoch=self._keeper.last_epoch,
            models_folder=str(self._library.folder),
            all_reduce_us=self._devices.all_reduce_us,
        )

    def advert(self, addresses: tuple[str, ...]) -> Advert:
        """What mDNS tells of this node at these addresses."""
        summary = device_summary(self._devices.facts(self._keeper.own_bytes))
        return Advert(
            node_id=self._identity.node_id,
            name=self._identity.name,
            version=__version__,
            wire_version=WIRE_VERSION,
            devices=summary.encode()[:MAX_TXT_BYTES].decode(errors="ignore"),
            addresses=addresses,
        )

    def _state(self) -> str:
        if self._desk.draining:
            return "draining"
        return "ready" if self._devices.measured else "starting"
