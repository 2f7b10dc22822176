"""Speeds that were measured on a busy machine are told as such, and measured again when the node is idle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from node.daemon.devices.readings import Speed
from node.daemon.devices.system import SystemDevices
from node.daemon.devices.watch import FIRST_PAUSE_S, LONGEST_PAUSE_S, DeviceWatch

BUSY = Speed(matrix_flops_per_s=1e9, memory_bytes_per_s=1e9, busy=True)
QUIET = Speed(matrix_flops_per_s=1e12, memory_bytes_per_s=1e10)


class Machine:
    """A machine that is busy for a number of measurements. `pauses` are those between them."""

    def __init__(self, folder: Path, *, busy: int) -> None:
        self.watch = DeviceWatch(
            SystemDevices({}),
            {"cpu": 1},
            memory_bytes=None,
            state=folder,
            measure=self._measure,
            measure_between=self._between,
        )
        self.told = 0
        self.pauses: list[float] = []
        self.measured = 0
        self._busy = busy

    def tell(self) -> None:
        self.told += 1

    async def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)

    async def _measure(self, _device: str, _threads: int) -> Speed:
        self.measured += 1
        return BUSY if self.measured <= self._busy else QUIET

    async def _between(self, _threads: Mapping[str, int]) -> float:
        raise AssertionError("one device has nobody to speak with")


async def test_a_quiet_machine_is_measured_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, busy=0)
    await machine.watch.measure()
    await machine.watch.measure_until_quiet(lambda: True, machine.tell, machine.sleep)
    assert (machine.measured, machine.pauses) == (1, [])
    (facts,) = machine.watch.facts({})
    assert (facts.matrix_flops_per_s, facts.measured_while_busy) == (1e12, False)


async def test_a_busy_machine_is_measured_again_ever_more_seldom(tmp_path: Path) -> None:
    machine = Machine(tmp_path, busy=9)
    await machine.watch.measure()
    (facts,) = machine.watch.facts({})
    assert (facts.matrix_flops_per_s, facts.measured_while_busy) == (1e9, True)
    await machine.watch.measure_until_quiet(lambda: True, machine.tell, machine.sleep)
    assert machine.pauses == [min(FIRST_PAUSE_S * 2**count, LONGEST_PAUSE_S) for count in range(9)]
    (facts,) = machine.watch.facts({})
    assert (facts.matrix_flops_per_s, facts.measured_while_busy) == (1e12, False)


async def test_the_next_start_knows_that_the_machine_was_busy(tmp_path: Path) -> None:
    await Machine(tmp_path, busy=1).watch.measure()
    machine = Machine(tmp_path, busy=0)
    await machine.watch.measure()
    assert (machine.measured, machine.watch.speeds["cpu"].busy) == (0, True)
    await machine.watch.measure_until_quiet(lambda: True, machine.tell, machine.sleep)
    assert (machine.measured, machine.watch.speeds["cpu"].busy) == (1, False)


async def test_a_node_that_has_work_is_not_measured_again_until_it_is_idle(tmp_path: Path) -> None:
    machine = Machine(tmp_path, busy=1)
    await machine.watch.measure()
    idle = iter([False, False, True])
    await machine.watch.measure_until_quiet(lambda: next(idle), machine.tell, machine.sleep)
    assert (machine.measured, machine.told, machine.pauses) == (2, 1, [FIRST_PAUSE_S] * 3)
