"""How fast this node's devices are: measured once in a child process, kept on disk for the next start.

Daemons on one machine measure one after the other, since together each would find half of what there is.
What cannot be measured stays unmeasured, with a line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from node.daemon.child import child, compute_environment, python_module
from node.daemon.devices import DeviceReading, Speed
from node.daemon.held_file import FileHeldError, held_file

MEASURE_DEADLINE_S = 120.0  # for one device; a cold start of torch may take half of it
TURN_DEADLINE_S = 180.0
TURN_POLL_S = 0.1
MAX_ANSWER_BYTES = 1 << 12
MAX_CACHE_BYTES = 1 << 20

log = logging.getLogger(__name__)
MeasureDevice = Callable[[str, int], Awaitable[Speed]]


class UnmeasuredError(Exception):
    """A device could not be measured; the text says why."""


async def measured_speeds(
    readings: Sequence[DeviceReading], *, threads: int, state: Path, measure: MeasureDevice
) -> dict[str, Speed]:
    """The speed of each device by its name, from the file in `state` or by `measure(device, threads)`."""
    cache = SpeedCache(state / "speeds.json")
    keys = {reading.device: speed_key(reading, threads) for reading in readings}
    try:
        async with asyncio.timeout(TURN_DEADLINE_S):
            while True:
                known = cache.read()
                if all(key in known for key in keys.values()):
                    return {device: known[key] for device, key in keys.items()}
                with contextlib.suppress(FileHeldError), held_file(state / "measuring.lock", ""):
                    return await _measure_missing(keys, threads, cache, measure)
                await asyncio.sleep(TURN_POLL_S)
    except (TimeoutError, OSError) as error:
        log.warning("The speed of the devices is not measured: %s.", str(error) or "it took too long")
        return {}


async def _measure_missing(
    keys: dict[str, str], threads: int, cache: SpeedCache, measure: MeasureDevice
) -> dict[str, Speed]:
    known = cache.read()
    for device, key in keys.items():
        if key in known:
            continue
        try:
            known[key] = await measure(device, threads)
        except UnmeasuredError as error:
            log.warning("The speed of %s is not measured: %s.", device, error)
    cache.write(known)
    return {device: known[key] for device, key in keys.items() if key in known}


async def measure_in_child(device: str, threads: int) -> Speed:
    """Measures one device in a process of its own, with this process's CPU affinity; UnmeasuredError if it fails."""
    command = python_module("node.daemon.measure_child", device, str(threads))
    environment = compute_environment(os.environ, threads)
    try:
        async with asyncio.timeout(MEASURE_DEADLINE_S), child(command, environment) as (process, words):
            assert process.stdout is not None
            answer = await process.stdout.read(MAX_ANSWER_BYTES)
            code = await process.wait()
    except TimeoutError:
        raise UnmeasuredError(f"it took over {MEASURE_DEADLINE_S:.0f} s") from None
    try:
        return speed_from_json(json.loads(answer))
    except ValueError:
        raise UnmeasuredError(words.last or f"its process ended with {code}") from None


def speed_from_json(value: object) -> Speed:
    """The speed in a JSON value; ValueError if there is no sensible one."""
    fields = ("matrix_flops_per_s", "memory_bytes_per_s")
    if not isinstance(value, dict) or set(value) != set(fields):
        raise ValueError("not a speed")
    numbers = [value[field] for field in fields]
    for number in numbers:
        if type(number) not in (int, float) or not 0 < number < 1e18:
            raise ValueError("not a speed")
    return Speed(matrix_flops_per_s=float(numbers[0]), memory_bytes_per_s=float(numbers[1]))


def speed_key(reading: DeviceReading, threads: int) -> str:
    """What a measurement holds for: the device, the threads and cores it ran on, and the version of torch."""
    torch = importlib.metadata.version("torch")
    if reading.kind != "cpu":
        return f"{reading.kind} {reading.name}, torch {torch}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"cpu {reading.name}, {threads} threads on {cores} cores, torch {torch}"


class SpeedCache:
    """Speeds by key in one JSON file; a damaged one is as good as none."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Speed]:
        """What is known."""
        try:
            with open(self._path, "rb") as file:
                entries = json.loads(file.read(MAX_CACHE_BYTES))
            return {str(key): speed_from_json(value) for key, value in dict(entries).items()}
        except (OSError, ValueError, TypeError):
            return {}

    def write(self, speeds: dict[str, Speed]) -> None:
        """Replaces what is known, in one piece."""
        entries = {
            key: {"matrix_flops_per_s": speed.matrix_flops_per_s, "memory_bytes_per_s": speed.memory_bytes_per_s}
            for key, speed in speeds.items()
        }
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(entries, indent=1))
        os.replace(fresh, self._path)
