"""How long this node's devices take to sum what each has: measured once, between child processes like ranks."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from layerline.facts import MAX_ALL_REDUCE_US
from layerline.hosting.child import child, compute_environment, python_module
from node.daemon.devices.measurements import MeasuredFile, UnmeasuredError, measured_again, measured_once
from node.daemon.devices.readings import DeviceReading
from node.daemon.devices.speeds import MEASURE_DEADLINE_S, answer_of, speed_key
from node.daemon.workers.seats import rank_seats

log = logging.getLogger(__name__)
MeasureBetween = Callable[[Mapping[str, int]], Awaitable[float]]


async def measured_all_reduce(
    readings: Sequence[DeviceReading],
    *,
    threads: Mapping[str, int],
    cores: int,
    state: Path,
    measure: MeasureBetween,
    again: bool = False,
) -> float:
    """Microseconds of one all-reduce between all devices, from the file in `state` or by `measure(threads)`.

    0 if it is not measured, and between fewer than two devices of one kind. It is not between parts of a CPU that have
    more threads than there are `cores`: ranks that wait for a core have the others wait, so none should be planned.
    """
    kinds = {reading.kind for reading in readings}
    if len(readings) < 2 or len(kinds) > 1:
        return 0.0
    all_threads = sum(threads[reading.device] for reading in readings)
    if kinds == {"cpu"} and all_threads > cores:
        log.warning(
            "The parts of the CPU have %d threads together and there are %d cores; "
            "no stage is split over them for speed.",
            all_threads,
            cores,
        )
        return 0.0
    name = " and ".join(reading.device for reading in readings)
    key = "; ".join(speed_key(reading, threads[reading.device]) for reading in readings)
    file = MeasuredFile(state / "all_reduce.json", all_reduce_from_json, float)
    what, keys = "The all-reduce", {name: key}

    def one(_name: str) -> Awaitable[float]:
        return measure(threads)

    known = await (measured_again(what, keys, file, one, min) if again else measured_once(what, keys, file, one))
    return known.get(name, 0.0)


async def measure_in_children(threads: Mapping[str, int]) -> float:
    """Measures between processes of their own, one for each device in `threads`; UnmeasuredError if one fails."""
    try:
        async with asyncio.timeout(MEASURE_DEADLINE_S), AsyncExitStack() as held:
            with rank_seats(threads) as seats:
                children = [
                    await held.enter_async_context(
                        child(
                            python_module("node.worker.all_reduce_child", str(seat.rank), str(seat.shared), *threads),
                            compute_environment(os.environ, seat.threads),
                            seat.descriptors,
                        )
                    )
                    for seat in seats
                ]
            answers = await asyncio.gather(*(answer_of(process, words) for process, words in children))
            return all_reduce_from_json(answers[0])
    except TimeoutError:
        raise UnmeasuredError(f"it took over {MEASURE_DEADLINE_S:.0f} s") from None
    except (OSError, ValueError) as error:
        raise UnmeasuredError(str(error)) from None


def all_reduce_from_json(value: object) -> float:
    """The time in a JSON value; ValueError if it is not a sensible one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_ALL_REDUCE_US:
        raise ValueError("not a time")
    return float(value)
