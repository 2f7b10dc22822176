"""How fast this node's devices are: measured once in a child process, kept on disk for the next start."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.metadata
import json
import os
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from layerline.hosting.child import LastWords, child, compute_environment, python_module
from node.daemon.devices.cores import usable_cores
from node.daemon.devices.measurements import MeasuredFile, UnmeasuredError, measured_again, measured_once
from node.daemon.devices.readings import DeviceReading, Speed
from node.kernels.library import kernels_here
from node.kernels.structures import VERSION as KERNELS_VERSION

MEASURE_DEADLINE_S = 120.0  # for one device; a cold start of torch may take half of it
MAX_ANSWER_BYTES = 1 << 12

MeasureDevice = Callable[[str, int], Awaitable[Speed]]


async def measured_speeds(
    readings: Sequence[DeviceReading],
    *,
    threads: Mapping[str, int],
    state: Path,
    measure: MeasureDevice,
    again: bool = False,
) -> dict[str, Speed]:
    """The speed of each device by its name, from the file in `state` or by `measure(device, threads)`.

    `again` measures in any case, and keeps the better of both.
    """
    keys = {reading.device: speed_key(reading, threads[reading.device]) for reading in readings}
    file = speed_file(state)

    def one(device: str) -> Awaitable[Speed]:
        return measure(device, threads[device])

    if again:
        return await measured_again("The speed", keys, file, one, Speed.best_with)
    return await measured_once("The speed", keys, file, one)


async def measure_in_child(device: str, threads: int) -> Speed:
    """Measures one device in a process of its own, with this process's CPU affinity; UnmeasuredError if it fails."""
    command = python_module("node.daemon.devices.speed_child", device, str(threads))
    environment = compute_environment(os.environ, threads)
    try:
        async with asyncio.timeout(MEASURE_DEADLINE_S), child(command, environment) as (process, words):
            return speed_from_json(await answer_of(process, words))
    except TimeoutError:
        raise UnmeasuredError(f"it took over {MEASURE_DEADLINE_S:.0f} s") from None
    except ValueError as error:
        raise UnmeasuredError(str(error)) from None


async def answer_of(process: Process, words: LastWords) -> object:
    """The JSON value that a measuring child prints, None if nothing; UnmeasuredError if it ends badly."""
    assert process.stdout is not None
    answer = await process.stdout.read(MAX_ANSWER_BYTES)
    if code := await process.wait():
        raise UnmeasuredError(words.last or f"its process ended with {code}")
    return json.loads(answer or "null")


def speed_file(state: Path) -> MeasuredFile[Speed]:
    """The file in `state` that keeps speeds by `speed_key`."""
    return MeasuredFile(state / "speeds.json", speed_from_json, dataclasses.asdict)


def speed_from_json(value: object) -> Speed:
    """The speed in a JSON value; ValueError if there is no sensible one."""
    fields = ("matrix_flops_per_s", "memory_bytes_per_s")
    if not isinstance(value, dict) or set(value) != {*fields, "busy"} or type(value["busy"]) is not bool:
        raise ValueError("not a speed")
    numbers = [value[field] for field in fields]
    for number in numbers:
        if type(number) not in (int, float) or not 0 < number < 1e18:
            raise ValueError("not a speed")
    return Speed(matrix_flops_per_s=float(numbers[0]), memory_bytes_per_s=float(numbers[1]), busy=value["busy"])


def speed_key(reading: DeviceReading, threads: int) -> str:
    """What a measurement holds for: the device, the threads and cores it ran on, and what computed."""
    by = f"torch {importlib.metadata.version('torch')}"
    if reading.kind != "cpu":
        return f"{reading.kind} {reading.name}, {by}"
    if kernels := kernels_here():
        by = f"kernels {KERNELS_VERSION} {kernels}"
    return f"cpu {reading.name}, {threads} threads on {usable_cores()} cores, {by}"
