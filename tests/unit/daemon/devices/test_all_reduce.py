"""The all-reduce between a node's devices is measured once, and only where there are several of one kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from node.daemon.devices.all_reduce import all_reduce_from_json, measured_all_reduce
from node.daemon.devices.measurements import UnmeasuredError
from node.daemon.devices.readings import DeviceReading


class FakeMeasure:
    """Measures in no time, or cannot."""

    def __init__(self, *, fails: bool = False) -> None:
        self.measured: list[dict[str, int]] = []
        self._fails = fails

    async def __call__(self, threads: Mapping[str, int]) -> float:
        self.measured.append(dict(threads))
        if self._fails:
            raise UnmeasuredError("no such luck")
        return 40.5


def cpus(count: int) -> list[DeviceReading]:
    return [reading(f"cpu:{rank}", "cpu") for rank in range(count)]


def reading(device: str, kind: str) -> DeviceReading:
    return DeviceReading(device=device, kind=kind, name="a device", total_bytes=1, free_bytes=1)


async def measured(readings: list[DeviceReading], state: Path, measure: FakeMeasure, threads: int = 1) -> float:
    count = dict.fromkeys((reading.device for reading in readings), threads)
    return await measured_all_reduce(readings, threads=count, cores=4, state=state, measure=measure)


async def test_it_is_measured_once_for_the_same_devices(tmp_path: Path) -> None:
    measure = FakeMeasure()
    for _ in range(2):
        assert await measured(cpus(2), tmp_path, measure) == 40.5
    assert measure.measured == [{"cpu:0": 1, "cpu:1": 1}]
    await measured(cpus(3), tmp_path, measure)
    await measured(cpus(2), tmp_path, measure, threads=2)
    assert len(measure.measured) == 3


async def test_there_is_none_with_one_device_or_unlike_ones(tmp_path: Path) -> None:
    measure = FakeMeasure()
    assert await measured(cpus(1), tmp_path, measure) == 0.0
    assert await measured([reading("cpu", "cpu"), reading("cuda:0", "cuda")], tmp_path, measure) == 0.0
    assert measure.measured == []


async def test_there_is_none_where_ranks_would_wait_for_cores(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measure = FakeMeasure()
    assert await measured(cpus(2), tmp_path, measure, threads=3) == 0.0
    assert measure.measured == []
    assert "have 6 threads together and there are 4 cores" in caplog.text


async def test_what_cannot_be_measured_is_zero(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await measured(cpus(2), tmp_path, FakeMeasure(fails=True)) == 0.0
    assert "The all-reduce of cpu:0 and cpu:1 is not measured: no such luck" in caplog.text


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", "0", "1e10", '"fast"', "true", "null", "[]"])
def test_a_number_that_is_no_time_is_refused(number: str) -> None:
    assert all_reduce_from_json(json.loads("40")) == 40.0
    with pytest.raises(ValueError, match="not a time"):
        all_reduce_from_json(json.loads(number))
