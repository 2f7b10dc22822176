"""The limits of control groups count, of both versions, wherever they are mounted and however high they are set."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from node.daemon.devices import cores, system
from node.daemon.devices.cgroups import MemoryLimit, core_limit, memory_limit

MIB = 1 << 20
UNLIMITED_V1 = "9223372036854771712"


class Machine:
    """A machine whose control groups are files below `folder`; `process` is what /proc/self has."""

    def __init__(self, folder: Path) -> None:
        self.process = folder / "proc"
        self.process.mkdir()
        self.sys = folder / "sys fs"
        self.cgroup = ""
        self.mountinfo = "22 1 0:21 / / rw - ext4 /dev/sda rw\n"

    def mounts(self, kind: str, options: str, at: str, root: str = "/") -> Path:
        """A mount of groups of that kind, and its folder."""
        folder = self.sys / at
        folder.mkdir(parents=True, exist_ok=True)
        escaped = str(folder).replace(" ", r"\040")
        self.mountinfo += f"30 22 0:27 {root} {escaped} rw,relatime shared:9 - {kind} {kind} {options}\n"
        (self.process / "mountinfo").write_text(self.mountinfo)
        return folder

    def is_in(self, line: str) -> None:
        self.cgroup += f"{line}\n"
        (self.process / "cgroup").write_text(self.cgroup)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def group(folder: Path, **files: str) -> Path:
    """A group at `folder` with these files, whose names have _ for the first dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text + "\n")
    return folder


def test_a_machine_without_control_groups_has_no_limits(machine: Machine) -> None:
    assert (memory_limit(machine.process), core_limit(machine.process)) == (None, math.inf)


def test_version_2(machine: Machine) -> None:
    mount = machine.mounts("cgroup2", "rw", "cgroup")
    machine.is_in("0::/user/box")
    stat = f"anon 5\nactive_file {40 * MIB}\ninactive_file {60 * MIB}\nshmem 7"
    group(
        mount / "user/box",
        memory_max=str(500 * MIB),
        memory_current=str(300 * MIB),
        memory_stat=stat,
        cpu_max="50000 100000",
    )
    assert memory_limit(machine.process) == MemoryLimit(total_bytes=500 * MIB, free_bytes=300 * MIB)
    assert core_limit(machine.process) == 0.5


def test_version_1(machine: Machine) -> None:
    memory, cpu = machine.mounts("cgroup", "rw,memory", "memory"), machine.mounts("cgroup", "rw,cpu,cpuacct", "cpu")
    machine.is_in("9:memory:/box")
    machine.is_in("4:cpu,cpuacct:/box")
    stat = f"active_file 1\ntotal_active_file {40 * MIB}\ntotal_inactive_file {60 * MIB}"
    group(
        memory / "box",
        memory_limit_in_bytes=str(500 * MIB),
        memory_usage_in_bytes=str(300 * MIB),
        memory_stat=stat,
    )
    group(cpu / "box", cpu_cfs_quota_us="150000", cpu_cfs_period_us="100000")
    assert memory_limit(machine.process) == MemoryLimit(total_bytes=500 * MIB, free_bytes=300 * MIB)
    assert core_limit(machine.process) == 1.5


def test_what_is_unlimited_is_no_limit(machine: Machine) -> None:
    both, memory = machine.mounts("cgroup2", "rw", "unified"), machine.mounts("cgroup", "rw,memory", "memory")
    machine.is_in("9:memory:/box")
    machine.is_in("0::/box")
    group(memory / "box", memory_limit_in_bytes=UNLIMITED_V1, memory_usage_in_bytes="5")
    group(both / "box", memory_max="max", memory_current="5", cpu_max="max 100000")
    assert (memory_limit(machine.process), core_limit(machine.process)) == (None, math.inf)


def test_the_least_on_the_way_up_counts(machine: Machine) -> None:
    mount = machine.mounts("cgroup2", "rw", "cgroup")
    machine.is_in("0::/a/b/c")
    group(mount / "a", memory_max=str(500 * MIB), memory_current=str(450 * MIB), cpu_max="100000 100000")
    group(mount / "a/b", memory_max=str(400 * MIB), memory_current=str(100 * MIB), cpu_max="max 100000")
    group(mount / "a/b/c", memory_max="max", memory_current=str(90 * MIB), cpu_max="300000 100000")
    group(mount / "other", memory_max="1", cpu_max="1 100000")
    assert memory_limit(machine.process) == MemoryLimit(total_bytes=400 * MIB, free_bytes=50 * MIB)
    assert core_limit(machine.process) == 1.0


def test_a_container_sees_its_own_group_as_the_mount(machine: Machine) -> None:
    mount = machine.mounts("cgroup", "rw,memory", "memory", root="/docker/abc")
    machine.is_in("9:memory:/docker/abc/inner")
    group(mount, memory_limit_in_bytes=str(500 * MIB), memory_usage_in_bytes="0")
    group(mount / "inner", memory_limit_in_bytes=UNLIMITED_V1, memory_usage_in_bytes="0")
    assert memory_limit(machine.process) == MemoryLimit(total_bytes=500 * MIB, free_bytes=500 * MIB)


@pytest.mark.parametrize("path", ["/../elsewhere", "/elsewhere"])
def test_a_group_that_cannot_be_seen_has_the_limits_of_the_mount(machine: Machine, path: str) -> None:
    mount = machine.mounts("cgroup2", "rw", "cgroup", root="/" if ".." in path else "/box")
    machine.is_in(f"0::{path}")
    group(mount, memory_max=str(500 * MIB), memory_current="0")
    assert memory_limit(machine.process) == MemoryLimit(total_bytes=500 * MIB, free_bytes=500 * MIB)


def test_a_limit_that_only_throttles_counts_too(machine: Machine) -> None:
    mount = machine.mounts("cgroup2", "rw", "cgroup")
    machine.is_in("0::/box")
    group(mount / "box", memory_max="max", memory_high=str(500 * MIB), memory_current=str(600 * MIB))
    assert memory_limit(machine.process) == MemoryLimit(total_bytes=500 * MIB, free_bytes=0)


@pytest.mark.parametrize("text", ["", "garbage", "-1", "50000", "0 0", "9" * 40])
def test_what_cannot_be_read_is_no_limit(machine: Machine, text: str) -> None:
    mount = machine.mounts("cgroup2", "rw", "cgroup")
    machine.is_in("0::/box")
    group(mount / "box", memory_max="x" + text, memory_current=text, memory_stat=text, cpu_max=text)
    assert (memory_limit(machine.process), core_limit(machine.process)) == (None, math.inf)


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.5, 1), (2.0, 2), (math.inf, 8)])
def test_no_more_threads_compute_than_there_is_time_for(
    quota: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores, "core_limit", lambda: quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(16)))
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 16 if logical else 8)
    assert cores.compute_threads() == threads
    assert cores.usable_cores() == (16 if quota == math.inf else threads)


def test_the_cpu_has_the_memory_that_its_groups_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "memory_limit", lambda: MemoryLimit(total_bytes=500 * MIB, free_bytes=MIB))
    reading = system.SystemDevices({}).read("cpu")
    assert (reading.total_bytes, reading.free_bytes) == (500 * MIB, MIB)
