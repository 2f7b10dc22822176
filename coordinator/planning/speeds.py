"""How long devices take, from what was measured on them.

The time of a byte of weights for one token is the time to read it and to multiply with it. Measurements vary
from one to the next, so speeds near each other count as equal; that keeps plans steady and shares even.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from layerline.facts import DeviceFacts
from layerline.plan import DTYPE_BYTES

EQUAL_WITHIN = 1.15
_UNKNOWN_BYTES_PER_S = 1.0  # when nothing was measured anywhere, only that all are alike matters


def seconds_per_byte(devices: Sequence[DeviceFacts], dtype: str) -> tuple[float, ...]:
    """For each device, the seconds that one byte of weights in `dtype` costs a token. Near values are made equal.

    A speed that was not measured is taken to be the slowest that was.
    """
    memory_floor = _slowest((device.memory_bytes_per_s for device in devices), _UNKNOWN_BYTES_PER_S)
    matrix_floor = _slowest((device.matrix_flops_per_s for device in devices), float("inf"))
    flops_per_byte = 2 / DTYPE_BYTES[dtype]  # a multiplication and an addition for each number
    return _levelled(
        [
            1 / (device.memory_bytes_per_s or memory_floor)
            + flops_per_byte / (device.matrix_flops_per_s or matrix_floor)
            for device in devices
        ]
    )


def _slowest(speeds: Iterable[float], otherwise: float) -> float:
    return min((speed for speed in speeds if speed > 0), default=otherwise)


def _levelled(times: Sequence[float]) -> tuple[float, ...]:
    """`times` with each group that lies within EQUAL_WITHIN of its fastest replaced by that fastest."""
    level = {}
    fastest = 0.0
    for time in sorted(set(times)):
        if time > fastest * EQUAL_WITHIN:
            fastest = time
        level[time] = fastest
    return tuple(level[time] for time in times)
