"""Speeds are measured once, one daemon after the other, and what cannot be measured does no harm."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from node.daemon.devices.measurements import UnmeasuredError
from node.daemon.devices.readings import DeviceReading, Speed
from node.daemon.devices.speeds import measured_speeds, speed_file, speed_from_json, speed_key

CPU = DeviceReading(device="cpu", kind="cpu", name="a CPU", total_bytes=1, free_bytes=1)
GPU = DeviceReading(device="cuda:0", kind="cuda", name="a GPU", total_bytes=1, free_bytes=1)
TWO = {"cpu": 2, "cuda:0": 2}
FAST = Speed(matrix_flops_per_s=1e12, memory_bytes_per_s=1e10)


class FakeMeasure:
    """Measures in no time, or cannot."""

    def __init__(self, *unmeasurable: str) -> None:
        self.measured: list[tuple[str, int]] = []
        self.running = 0
        self._unmeasurable = unmeasurable

    async def __call__(self, device: str, threads: int) -> Speed:
        assert self.running == 0, "two measure at once"
        self.running += 1
        self.measured.append((device, threads))
        await asyncio.sleep(0)
        self.running -= 1
        if device in self._unmeasurable:
            raise UnmeasuredError("no such luck")
        return FAST


async def test_a_device_is_measured_once(tmp_path: Path) -> None:
    measure = FakeMeasure()
    for _ in range(2):
        assert await measured_speeds([CPU, GPU], threads=TWO, state=tmp_path, measure=measure) == {
            "cpu": FAST,
            "cuda:0": FAST,
        }
    assert measure.measured == [("cpu", 2), ("cuda:0", 2)]


async def test_other_threads_are_another_measurement(tmp_path: Path) -> None:
    measure = FakeMeasure()
    await measured_speeds([CPU], threads={"cpu": 1}, state=tmp_path, measure=measure)
    await measured_speeds([CPU], threads=TWO, state=tmp_path, measure=measure)
    assert measure.measured == [("cpu", 1), ("cpu", 2)]
    assert speed_key(GPU, 1) == speed_key(GPU, 2)


async def test_daemons_measure_one_after_the_other(tmp_path: Path) -> None:
    measure = FakeMeasure()
    both = [measured_speeds([CPU], threads=TWO, state=tmp_path, measure=measure) for _ in range(2)]
    async with asyncio.timeout(20):
        assert await asyncio.gather(*both) == [{"cpu": FAST}, {"cpu": FAST}]
    assert len(measure.measured) == 1


async def test_what_cannot_be_measured_stays_unmeasured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    speeds = await measured_speeds([CPU, GPU], threads=TWO, state=tmp_path, measure=FakeMeasure("cpu"))
    assert speeds == {"cuda:0": FAST}
    assert "The speed of cpu is not measured: no such luck" in caplog.text


async def test_a_state_folder_that_is_gone_leaves_it_unmeasured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await measured_speeds([CPU], threads=TWO, state=tmp_path / "gone", measure=FakeMeasure()) == {}
    assert "not measured" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {"matrix_flops_per_s": 1}}', "\x00"])
async def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "speeds.json").write_text(content)
    measure = FakeMeasure()
    await measured_speeds([CPU], threads=TWO, state=tmp_path, measure=measure)
    assert len(measure.measured) == 1
    assert list(speed_file(tmp_path).read().values()) == [FAST]


async def test_what_was_measured_on_a_busy_machine_is_measured_again_and_the_best_is_kept(tmp_path: Path) -> None:
    found = [
        Speed(matrix_flops_per_s=1e9, memory_bytes_per_s=3e9, busy=True),
        Speed(matrix_flops_per_s=2e9, memory_bytes_per_s=1e9, busy=True),
        Speed(matrix_flops_per_s=5e9, memory_bytes_per_s=2e9),
    ]

    async def measure(_device: str, _threads: int) -> Speed:
        return found.pop(0)

    async def measured(*, again: bool) -> Speed:
        speeds = await measured_speeds([CPU], threads=TWO, state=tmp_path, measure=measure, again=again)
        assert speeds == dict.fromkeys(["cpu"], *speed_file(tmp_path).read().values())
        return speeds["cpu"]

    assert await measured(again=False) == Speed(matrix_flops_per_s=1e9, memory_bytes_per_s=3e9, busy=True)
    assert await measured(again=False) == Speed(matrix_flops_per_s=1e9, memory_bytes_per_s=3e9, busy=True)
    assert await measured(again=True) == Speed(matrix_flops_per_s=2e9, memory_bytes_per_s=3e9, busy=True)
    assert await measured(again=True) == Speed(matrix_flops_per_s=5e9, memory_bytes_per_s=3e9)


async def test_a_measurement_that_fails_leaves_what_is_known(tmp_path: Path) -> None:
    for again in (False, True):
        measure = FakeMeasure("cpu") if again else FakeMeasure()
        speeds = await measured_speeds([CPU], threads=TWO, state=tmp_path, measure=measure, again=again)
        assert speeds == {"cpu": FAST}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", "0", "1e18", '"fast"', "true", "null"])
def test_a_number_that_is_no_speed_is_refused(number: str) -> None:
    value = json.loads(f'{{"matrix_flops_per_s": {number}, "memory_bytes_per_s": 1e9, "busy": false}}')
    with pytest.raises(ValueError, match="not a speed"):
        speed_from_json(value)
