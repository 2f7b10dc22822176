"""Which devices a node uses and what models may take on them."""

from __future__ import annotations

import dataclasses

import pytest

from layerline.errors import UsageError
from node.daemon.devices.readings import (
    DeviceReading,
    Speed,
    check_memory,
    chosen_devices,
    device_facts,
    device_summary,
    shared_out,
)
from node.kernels.triton_here import triton_here

GIB = 1 << 30
EVEN = {"cpu:0": 1, "cpu:1": 1}
CPU = DeviceReading(device="cpu", kind="cpu", name="a CPU", total_bytes=16 * GIB, free_bytes=10 * GIB)
BIG = DeviceReading(device="cuda:0", kind="cuda", name="big", total_bytes=30 * GIB, free_bytes=30 * GIB)
SMALL = DeviceReading(device="cuda:1", kind="cuda", name="small", total_bytes=10 * GIB, free_bytes=1 * GIB)


@pytest.mark.parametrize(
    ("asked", "present", "chosen"),
    [
        ((), ("cpu",), ("cpu",)),
        ((), ("cpu", "mps"), ("mps",)),
        ((), ("cpu", "cuda:0", "cuda:1"), ("cuda:0", "cuda:1")),
        (("cpu",), ("cpu", "cuda:0"), ("cpu",)),
        (("cuda:1",), ("cpu", "cuda:0", "cuda:1"), ("cuda:1",)),
        (("cpu:0", "cpu:1"), ("cpu", "cuda:0"), ("cpu:0", "cpu:1")),
    ],
)
def test_accelerators_come_first_unless_told_otherwise(
    asked: tuple[str, ...], present: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    assert chosen_devices(asked, present) == chosen


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match=r"--device cuda:1: .* has cpu, cuda:0"):
        chosen_devices(("cuda:0", "cuda:1"), ("cpu", "cuda:0"))


def test_without_a_limit_models_may_take_most_of_what_is_free() -> None:
    (facts,) = device_facts([CPU], memory_bytes=None, threads={"cpu": 4}, speeds={}, own_bytes={})
    assert (facts.budget_bytes, facts.threads, facts.matrix_flops_per_s) == (9 * GIB, 4, 0.0)


def test_where_little_is_free_a_worker_still_has_room_to_run() -> None:
    small = dataclasses.replace(CPU, total_bytes=500 << 20, free_bytes=400 << 20)
    (facts,) = device_facts([small], memory_bytes=None, threads={"cpu": 1}, speeds={}, own_bytes={})
    assert facts.budget_bytes == (400 - 256) << 20
    tiny = dataclasses.replace(small, free_bytes=100 << 20)
    (facts,) = device_facts([tiny], memory_bytes=None, threads={"cpu": 1}, speeds={}, own_bytes={})
    assert facts.budget_bytes == 0


def test_what_this_nodes_own_stage_takes_counts_as_free() -> None:
    (facts,) = device_facts([CPU], memory_bytes=None, threads={"cpu": 4}, speeds={}, own_bytes={"cpu": 4 * GIB})
    assert facts.budget_bytes == int(0.9 * 14 * GIB)


def test_a_limit_is_shared_out_by_the_size_of_the_devices() -> None:
    facts = device_facts(
        [BIG, SMALL],
        memory_bytes=8 * GIB,
        threads={"cuda:0": 4, "cuda:1": 4},
        speeds={"cuda:0": Speed(matrix_flops_per_s=1e12)},
        own_bytes={},
    )
    assert [device.budget_bytes for device in facts] == [6 * GIB, 2 * GIB]
    assert [device.threads for device in facts] == [0, 0]
    assert facts[0].matrix_flops_per_s == 1e12
    assert device_summary(facts) == "2 x big, 40.0 GiB"


def test_each_kind_of_device_has_the_kernels_that_there_are_for_it() -> None:
    def kernels(reading: DeviceReading) -> str:
        return {"cpu": "avx2", "cuda": "triton"}.get(reading.kind, "")

    readings = [CPU, BIG, dataclasses.replace(CPU, device="mps", kind="mps")]
    facts = device_facts(readings, memory_bytes=None, threads={"cpu": 4}, speeds={}, own_bytes={}, kernels=kernels)
    assert [device.kernels for device in facts] == ["avx2", "triton", ""]


@pytest.mark.parametrize(
    ("found", "compiler", "switch", "capability", "name"),
    [
        (True, "/usr/bin/cc", "", (8, 0), "triton"),
        (True, "/usr/bin/cc", "", (12, 0), "triton"),
        (True, "/usr/bin/cc", "", (7, 5), ""),
        (False, "/usr/bin/cc", "", (8, 0), ""),
        (True, None, "", (8, 0), ""),
        (True, "/usr/bin/cc", "off", (8, 0), ""),
    ],
)
def test_triton_needs_a_compiler_and_a_newer_gpu_and_can_be_switched_off(
    found: bool,
    compiler: str | None,
    switch: str,
    capability: tuple[int, int],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if found else None)
    monkeypatch.setattr("shutil.which", lambda name: compiler)
    monkeypatch.setenv("LAYERLINE_KERNELS", switch)
    assert triton_here(capability) == name


def test_parts_of_a_cpu_have_its_memory_in_proportion_to_their_threads() -> None:
    whole = [dataclasses.replace(CPU, device=device) for device in ("cpu:0", "cpu:1")]
    threads = {"cpu:0": 3, "cpu:1": 1}
    parts = shared_out(whole, threads)
    assert [(part.total_bytes, part.free_bytes) for part in parts] == [
        (12 * GIB, 7.5 * GIB),
        (4 * GIB, 2.5 * GIB),
    ]
    check_memory(16 * GIB, parts)
    facts = device_facts(parts, memory_bytes=8 * GIB, threads=threads, speeds={}, own_bytes={})
    assert [(device.device, device.kind, device.threads) for device in facts] == [
        ("cpu:0", "cpu", 3),
        ("cpu:1", "cpu", 1),
    ]
    assert [device.budget_bytes for device in facts] == [6 * GIB, 2 * GIB]


def test_what_one_part_of_a_cpu_takes_all_of_them_have_less() -> None:
    parts = shared_out([dataclasses.replace(CPU, device=device) for device in ("cpu:0", "cpu:1")], EVEN)
    facts = device_facts(parts, memory_bytes=None, threads=EVEN, speeds={}, own_bytes={"cpu:0": 4 * GIB})
    assert [device.budget_bytes for device in facts] == [int(0.9 * 7 * GIB)] * 2


def test_what_one_gpu_has_taken_counts_as_free_on_it_alone() -> None:
    facts = device_facts(
        [BIG, SMALL],
        memory_bytes=None,
        threads={"cuda:0": 1, "cuda:1": 1},
        speeds={},
        own_bytes={"cuda:1": 5 * GIB},
    )
    assert [device.budget_bytes for device in facts] == [27 * GIB, int(0.9 * 6 * GIB)]


def test_other_devices_are_as_they_are_beside_parts_of_a_cpu() -> None:
    assert shared_out([CPU, BIG], {"cpu": 8, "cuda:0": 8}) == (CPU, BIG)


def test_a_limit_over_what_there_is_is_refused() -> None:
    check_memory(16 * GIB, [CPU])
    with pytest.raises(UsageError, match=r"--memory 17\.0 GiB is more than the 16\.0 GiB"):
        check_memory(17 * GIB, [CPU])
