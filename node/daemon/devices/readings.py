"""The devices of this node and how much memory models may take on each.

Pure but for the readings it is given; what the operating system and the driver say comes from
`node.daemon.devices.system`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from layerline.errors import UsageError
from layerline.facts import DeviceFacts
from layerline.units import format_bytes

FREE_SHARE = 0.9  # of the free memory; the rest is for whatever else runs
RUNTIME_BYTES = 256 << 20  # at least left beside models in the machine's memory: what a worker has without one


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceReading:
    """What a device is and has at this moment."""

    device: str
    kind: str
    name: str
    total_bytes: int
    free_bytes: int
    capability: tuple[int, int] = (0, 0)  # CUDA's word for what a GPU can


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """What was measured on a device; 0 where it was not. `busy`: other programs ran meanwhile, so it may be more."""

    matrix_flops_per_s: float = 0.0
    memory_bytes_per_s: float = 0.0
    busy: bool = False

    def best_with(self, other: Speed) -> Speed:
        """The better of two measurements, since whatever else runs only ever takes away."""
        return Speed(
            matrix_flops_per_s=max(self.matrix_flops_per_s, other.matrix_flops_per_s),
            memory_bytes_per_s=max(self.memory_bytes_per_s, other.memory_bytes_per_s),
            busy=self.busy and other.busy,
        )


def chosen_devices(asked: Sequence[str], present: Sequence[str]) -> tuple[str, ...]:
    """The devices to use: those asked for, or else every CUDA device, or else mps, or else the CPU."""
    missing = [device for device in asked if device not in present and not device.startswith("cpu:")]
    if missing:
        remedy = f"This machine has {', '.join(present)}."
        raise UsageError(f"--device {','.join(missing)}: there is no such device here.", remedy=remedy)
    accelerators = tuple(device for device in present if device.startswith("cuda:"))
    return tuple(asked) or accelerators or (("mps",) if "mps" in present else ("cpu",))


def shared_out(readings: Sequence[DeviceReading], threads: Mapping[str, int]) -> tuple[DeviceReading, ...]:
    """The readings, where parts of one CPU have each its part of the memory, in proportion to their threads."""
    all_threads = sum(threads[reading.device] for reading in readings if reading.kind == "cpu")
    return tuple(
        dataclasses.replace(
            reading,
            total_bytes=reading.total_bytes * threads[reading.device] // all_threads,
            free_bytes=reading.free_bytes * threads[reading.device] // all_threads,
        )
        if reading.kind == "cpu"
        else reading
        for reading in readings
    )


def check_memory(memory_bytes: int | None, readings: Sequence[DeviceReading]) -> None:
    """UsageError if --memory is more than the devices have together."""
    total_bytes = sum(reading.total_bytes for reading in readings)
    if memory_bytes is not None and memory_bytes > total_bytes:
        raise UsageError(
            f"--memory {format_bytes(memory_bytes)} is more than the {format_bytes(total_bytes)} that "
            f"{', '.join(reading.device for reading in readings)} has.",
            remedy="Give less, or leave --memory out to use most of what is free.",
        )


def device_facts(
    readings: Sequence[DeviceReading],
    *,
    memory_bytes: int | None,
    threads: Mapping[str, int],
    speeds: Mapping[str, Speed],
    own_bytes: Mapping[str, int],
    kernels: Callable[[DeviceReading], str] = lambda _reading: "",
) -> tuple[DeviceFacts, ...]:
    """The facts of every device; `memory_bytes` is what models may take on all of them together, if given.

    `own_bytes` is what this node's own stage takes on each, which counts as free; `kernels` says what multiplies
    weights as they are stored on a device, empty if nothing does.
    """
    total_bytes = sum(reading.total_bytes for reading in readings)
    facts = []
    for reading in readings:
        speed = speeds.get(reading.device, Speed())
        if memory_bytes is None:
            free_bytes = reading.free_bytes + _own_bytes(reading, readings, own_bytes)
            budget_bytes = _most_of(reading, min(reading.total_bytes, free_bytes))
        else:
            budget_bytes = memory_bytes * reading.total_bytes // max(1, total_bytes)
        facts.append(
            DeviceFacts(
                device=reading.device,
                kind=reading.kind,
                name=reading.name,
                threads=threads[reading.device] if reading.kind == "cpu" else 0,
                total_bytes=reading.total_bytes,
                free_bytes=reading.free_bytes,
                budget_bytes=budget_bytes,
                matrix_flops_per_s=speed.matrix_flops_per_s,
                memory_bytes_per_s=speed.memory_bytes_per_s,
                measured_while_busy=speed.busy,
                kernels=kernels(reading),
            )
        )
    return tuple(facts)


def device_summary(facts: Sequence[DeviceFacts]) -> str:
    """The devices in a few words, as in "2 x NVIDIA H200, 282 GiB" or "cpu 8 threads, 16.0 GiB"."""
    first = facts[0]
    what = f"cpu {first.threads} threads" if first.kind == "cpu" else first.name
    count = f"{len(facts)} x " if len(facts) > 1 else ""
    return f"{count}{what}, {format_bytes(sum(device.total_bytes for device in facts))}"


def _most_of(reading: DeviceReading, free_bytes: int) -> int:
    """What models may take of so much free memory."""
    most_bytes = int(FREE_SHARE * free_bytes)
    return most_bytes if reading.kind == "cuda" else max(0, min(most_bytes, free_bytes - RUNTIME_BYTES))


def _own_bytes(reading: DeviceReading, readings: Sequence[DeviceReading], own_bytes: Mapping[str, int]) -> int:
    """What the node's own stage takes of this device's memory, which parts of a CPU have in common."""
    if reading.kind != "cpu":
        return own_bytes.get(reading.device, 0)
    parts = [part for part in readings if part.kind == "cpu"]
    taken_bytes = sum(own_bytes.get(part.device, 0) for part in parts)
    return taken_bytes * reading.total_bytes // max(1, sum(part.total_bytes for part in parts))
