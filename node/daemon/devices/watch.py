"""The devices that this node offers, watched: what they have at this moment, and what was measured of them."""

from __future__ import annotations

from collections.abc import Mapping

from layerline.facts import DeviceFacts
from node.daemon.devices.readings import DeviceReading, Speed, device_facts, shared_out
from node.daemon.devices.system import SystemDevices
from node.daemon.settings import NodeSettings


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
