"""Which devices a node uses and what models may take on them."""

from __future__ import annotations

import pytest

from layerline.errors import UsageError
from layerline.facts import LoadedStage
from node.daemon.devices import DeviceReading, Speed, check_memory, chosen_devices, device_facts, device_summary
from tests.fakes.daemon_parts import stage_spec

GIB = 1 << 30
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
    ],
)
def test_accelerators_come_first_unless_told_otherwise(
    asked: tuple[str, ...], present: tuple[str, ...], chosen: tuple[str, ...]
):
    assert chosen_devices(asked, present) == chosen


def test_a_device_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UsageError, match=r"--device cuda:1: .* has cpu, cuda:0"):
        chosen_devices(("cuda:0", "cuda:1"), ("cpu", "cuda:0"))


def test_without_a_limit_models_may_take_most_of_what_is_free():
    (facts,) = device_facts([CPU], memory_bytes=None, threads=4, speeds={}, loaded=None)
    assert (facts.budget_bytes, facts.threads, facts.matrix_flops_per_s) == (9 * GIB, 4, 0.0)


def test_what_this_nodes_own_stage_takes_counts_as_free():
    loaded = LoadedStage(spec=stage_spec(), weights_bytes=3 * GIB, kv_bytes=1 * GIB)
    (facts,) = device_facts([CPU], memory_bytes=None, threads=4, speeds={}, loaded=loaded)
    assert facts.budget_bytes == int(0.9 * 14 * GIB)


def test_a_limit_is_shared_out_by_the_size_of_the_devices():
    facts = device_facts(
        [BIG, SMALL], memory_bytes=8 * GIB, threads=4, speeds={"cuda:0": Speed(matrix_flops_per_s=1e12)}, loaded=None
    )
    assert [device.budget_bytes for device in facts] == [6 * GIB, 2 * GIB]
    assert [device.threads for device in facts] == [0, 0]
    assert facts[0].matrix_flops_per_s == 1e12
    assert device_summary(facts) == "2 x big, 40.0 GiB"


def test_a_limit_over_what_there_is_is_refused():
    check_memory(16 * GIB, [CPU])
    with pytest.raises(UsageError, match=r"--memory 17\.0 GiB is more than the 16\.0 GiB"):
        check_memory(17 * GIB, [CPU])
