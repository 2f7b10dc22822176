"""The devices that this node offers, watched: what they have at this moment, and what was measured of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from layerline.errors import UsageError
from layerline.facts import DeviceFacts
from node.daemon.devices.all_reduce import MeasureBetween, measure_in_children, measured_all_reduce
from node.daemon.devices.cores import usable_cores
from node.daemon.devices.readings import DeviceReading, Speed, device_facts, shared_out
from node.daemon.devices.speeds import MeasureDevice, measure_in_child, measured_speeds
from node.daemon.devices.system import SystemDevices
from node.kernels.library import SWITCH, KernelsMissingError, check_choice, kernels_here, library
from node.kernels.triton_here import triton_here

FIRST_PAUSE_S = 60.0  # before what was measured on a busy machine is measured again
LONGEST_PAUSE_S = 3600.0

log = logging.getLogger(__name__)
Sleep = Callable[[float], Awaitable[None]]


class DeviceWatch:
    """The devices in use, as they are now, and what was measured of them: nothing until `measured`.

    `threads` are those of each device, by its name; `memory_bytes` is what models may take on all of them, if given.
    """

    def __init__(
        self,
        system: SystemDevices,
        threads: Mapping[str, int],
        *,
        memory_bytes: int | None,
        state: Path,
        measure: MeasureDevice = measure_in_child,
        measure_between: MeasureBetween = measure_in_children,
    ) -> None:
        self.threads = threads
        self.measured = False
        self.speeds: Mapping[str, Speed] = {}
        self.all_reduce_us = 0.0
        self._memory_bytes = memory_bytes
        self._system = system
        self._state = state
        self._measure = measure
        self._measure_between = measure_between

    async def measure(self, *, again: bool = False) -> None:
        """Takes what was measured once, or measures it; `again` measures in any case, and keeps the better."""
        readings, threads, state = self.readings(), self.threads, self._state
        try:
            self.speeds = await measured_speeds(
                readings, threads=threads, state=state, measure=self._measure, again=again
            )
            self.all_reduce_us = await measured_all_reduce(
                readings,
                threads=threads,
                cores=usable_cores(),
                state=state,
                measure=self._measure_between,
                again=again,
            )
        finally:
            self.measured = True

    async def measure_until_quiet(
        self, is_idle: Callable[[], bool], on_measured: Callable[[], None], sleep: Sleep = asyncio.sleep
    ) -> None:
        """Measures again while what is known was measured on a busy machine; only while this node is idle itself."""
        pause_s = FIRST_PAUSE_S
        while any(speed.busy for speed in self.speeds.values()):
            await sleep(pause_s)
            if is_idle():
                await self.measure(again=True)
                on_measured()
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def readings(self) -> tuple[DeviceReading, ...]:
        """What they are and have; parts of the CPU have their parts of its memory."""
        return shared_out([self._system.read(device) for device in self.threads], self.threads)

    def facts(self, own_bytes: Mapping[str, int]) -> tuple[DeviceFacts, ...]:
        """What they are, have, and may give to models; what this node's own stage takes on each counts as free."""
        return device_facts(
            self.readings(),
            memory_bytes=self._memory_bytes,
            threads=self.threads,
            speeds=self.speeds,
            own_bytes=own_bytes,
            kernels=_kernels_of,
        )


def _kernels_of(reading: DeviceReading) -> str:
    return kernels_here() if reading.kind == "cpu" else triton_here(reading.capability)


def check_kernels() -> None:
    """Says in the log why there are no kernels; UsageError if the environment asks for some that cannot be used."""
    try:
        check_choice()
        library()
    except KernelsMissingError as missing:
        if os.environ.get(SWITCH, "off") != "off":
            raise UsageError(str(missing), remedy=f"Leave {SWITCH} out, or set it to off.") from missing
        log.warning("There are no kernels, so that torch computes on the CPU. %s", missing)
