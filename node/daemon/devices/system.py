"""Reads the devices of this machine: the CPU by psutil, CUDA devices by NVML, Apple's GPU by the platform.

Never touches CUDA itself, so that the daemon takes no device memory. Device numbers are those that a worker
sees, which is why workers are started with CUDA_DEVICE_ORDER=PCI_BUS_ID.
"""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pynvml

from node.daemon.devices.cgroups import memory_limit
from node.daemon.devices.readings import DeviceReading

log = logging.getLogger(__name__)


class SystemDevices:
    """The devices there are. Made by `system_devices`."""

    def __init__(self, cuda_handles: Mapping[str, Any]) -> None:
        self._cuda_handles = cuda_handles

    def present(self) -> tuple[str, ...]:
        """The names of all devices."""
        return ("cpu", *(("mps",) if _has_mps() else ()), *self._cuda_handles)

    def read(self, device: str) -> DeviceReading:
        """One device as it is now; a part of the CPU, like `cpu:1`, as if it were the whole."""
        if device in self._cuda_handles:
            return _read_cuda(device, self._cuda_handles[device])
        total_bytes, free_bytes = _machine_memory()
        kind = device.partition(":")[0]
        return DeviceReading(
            device=device,
            kind=kind,
            name=_cpu_name() if kind == "cpu" else "Apple GPU",
            total_bytes=total_bytes,
            free_bytes=free_bytes,
        )


@contextmanager
def system_devices(environment: Mapping[str, str]) -> Iterator[SystemDevices]:
    """The devices of this machine, with the driver's library open for the time of the block."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield SystemDevices({})  # no NVIDIA driver
        return
    try:
        yield SystemDevices(_cuda_handles(environment.get("CUDA_VISIBLE_DEVICES")))
    finally:
        pynvml.nvmlShutdown()


def _cuda_handles(visible: str | None) -> dict[str, Any]:
    """NVML handles by the number that CUDA gives the device, CUDA_VISIBLE_DEVICES respected."""
    handles: dict[str, Any] = {}
    names = range(pynvml.nvmlDeviceGetCount()) if visible is None else visible.split(",")
    for name in map(str, names):
        try:
            handle = (
                pynvml.nvmlDeviceGetHandleByIndex(int(name))
                if name.strip().isdigit()
                else pynvml.nvmlDeviceGetHandleByUUID(name.strip())
            )
        except pynvml.NVMLError:
            break  # CUDA, too, sees nothing from the first bad name on
        handles[f"cuda:{len(handles)}"] = handle
    return handles


def _read_cuda(device: str, handle: Any) -> DeviceReading:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        total_bytes, free_bytes = int(memory.total), int(memory.free)
        name = str(pynvml.nvmlDeviceGetName(handle))
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError as error:
        log.warning("%s cannot be read: %s", device, error)
        return DeviceReading(device=device, kind="cuda", name="unreadable", total_bytes=0, free_bytes=0)
    return DeviceReading(
        device=device,
        kind="cuda",
        name=name,
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        capability=(int(major), int(minor)),
    )


def _machine_memory() -> tuple[int, int]:
    """What of the machine's memory this process may have, as far as its control groups go, and what of that is free."""
    memory, limit = psutil.virtual_memory(), memory_limit()
    if limit is None:
        return memory.total, memory.available
    return min(memory.total, limit.total_bytes), min(memory.available, limit.free_bytes)


def _has_mps() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def _cpu_name() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
