"""Ranks that sum and gather over memory they share: the same bits everywhere, and an end to waiting."""

from __future__ import annotations

import functools
import itertools
import os
import random
import threading

import pytest
import torch
from torch import Tensor

from layerline.errors import StageFailedError
from node.ranks import rank_mapping, shared_memory
from node.ranks.group import Alone
from node.ranks.measure import measure_all_reduce
from node.ranks.rank_mapping import SLOT_BYTES
from node.ranks.shared_memory import SharedMemoryGroup
from tests.fakes.ranked_stages import shared_groups, together

CPU = torch.device("cpu")


def numbers(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def reduced(group: SharedMemoryGroup, x: Tensor) -> Tensor:
    group.all_reduce_(x)
    return x


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_rank_gets_the_bits_of_the_sum_in_rank_order(count: int, dtype: torch.dtype) -> None:
    parts = [numbers(rank, 5, 896, dtype=dtype) for rank in range(count)]
    expected = parts[0].float()
    for part in parts[1:]:
        expected = expected + part.float()
    groups = shared_groups(count)
    for _ in range(3):
        sums = together([functools.partial(reduced, groups[rank], parts[rank].clone()) for rank in range(count)])
        assert all(torch.equal(total, expected.to(dtype)) for total in sums)


def test_a_tensor_of_several_slots_goes_in_blocks() -> None:
    values = 2 * SLOT_BYTES // 4 + 7
    parts = [numbers(rank, values) for rank in range(2)]
    groups = shared_groups(2)
    sums = together([functools.partial(reduced, groups[rank], parts[rank].clone()) for rank in range(2)])
    assert all(torch.equal(total, parts[0] + parts[1]) for total in sums)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("widths", [(3, 5, 1), (100_000, 1, 70_000)])
def test_blocks_of_unlike_widths_come_together_on_rank_0(
    widths: tuple[int, ...], rows: int, dtype: torch.dtype
) -> None:
    """Those of 100,000 numbers a row need more blocks than the others have."""
    parts = [numbers(rank, rows, width, dtype=dtype) for rank, width in enumerate(widths)]
    groups = shared_groups(3)
    for _ in range(2):
        first, *others = together([functools.partial(groups[rank].gather, parts[rank]) for rank in range(3)])
        assert others == [None, None]
        assert first is not None
        assert all(torch.equal(block, part) for block, part in zip(first, parts, strict=True))
        sums = together([functools.partial(reduced, group, torch.ones(4)) for group in groups])
        assert all(total.tolist() == [3.0] * 4 for total in sums)


def test_a_strided_block_is_gathered_as_it_reads() -> None:
    groups = shared_groups(2)
    parts = [numbers(rank, 4, 3).t() for rank in range(2)]
    first, _ = together([functools.partial(groups[rank].gather, parts[rank]) for rank in range(2)])
    assert first is not None
    assert all(torch.equal(block, part) for block, part in zip(first, parts, strict=True))


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_that_come_at_any_time_never_read_what_is_not_yet_or_no_longer_there(count: int) -> None:
    """Each waits a random while before each operation, so that now this one is ahead and now that one."""

    def work(group: SharedMemoryGroup) -> list[float]:
        luck = random.Random(group.rank)
        sums = []
        for operation in range(200):
            threading.Event().wait(luck.choice([0, 0, 0, 0.0005]))
            if operation % 7 == 3:
                gathered = group.gather(torch.full((2, 1 + group.rank), float(operation)))
                assert gathered is None or all((block == operation).all() for block in gathered)
            x = torch.full((64,), float(operation * (group.rank + 1)))
            group.all_reduce_(x)
            assert (x == x[0]).all()
            sums.append(float(x[0]))
        return sums

    expected = [float(operation * count * (count + 1) // 2) for operation in range(200)]
    assert together([functools.partial(work, group) for group in shared_groups(count)]) == [expected] * count


def silent_group(rank: int, count: int) -> SharedMemoryGroup:
    """A rank whose others never come, with a clock on which three seconds pass at each look."""
    descriptor = rank_mapping.create(count)
    try:
        shared = rank_mapping.attach(descriptor, count)
    finally:
        os.close(descriptor)
    ticks = itertools.count(0, 3)
    return SharedMemoryGroup(shared, rank, [f"cpu:{n}" for n in range(count)], clock=lambda: float(next(ticks)))


@pytest.mark.parametrize(("rank", "names"), [(0, r"1 \(cpu:1\)"), (1, r"0 \(cpu:0\)")])
def test_a_silent_rank_is_named_at_the_deadline(rank: int, names: str) -> None:
    with pytest.raises(StageFailedError, match=f"Rank {names} of the stage did not take part .* within 10 s"):
        silent_group(rank, 2).all_reduce_(torch.ones(4))
    with pytest.raises(StageFailedError, match=f"Rank {names}"):
        silent_group(rank, 2).gather(torch.ones(4, 4))


def test_all_silent_ranks_are_named_and_those_that_came_are_not() -> None:
    with pytest.raises(StageFailedError, match=r"Rank 0 \(cpu:0\), 2 \(cpu:2\) of the stage"):
        silent_group(1, 3).all_reduce_(torch.ones(4))


def test_memory_of_another_size_or_kind_is_refused() -> None:
    descriptor = rank_mapping.create(2)
    try:
        with pytest.raises(StageFailedError, match=f"has {rank_mapping.mapping_bytes(2)} bytes, but 3 ranks need"):
            rank_mapping.attach(descriptor, 3)
        os.pwrite(descriptor, b"another!", 0)
        with pytest.raises(StageFailedError, match="not that of 2 ranks"):
            rank_mapping.attach(descriptor, 2)
        os.ftruncate(descriptor, 4096)
        with pytest.raises(StageFailedError, match="has 4096 bytes"):
            rank_mapping.attach(descriptor, 2)
    finally:
        os.close(descriptor)
    with pytest.raises(StageFailedError, match="cannot be reached"):
        rank_mapping.attach(descriptor, 2)


def test_the_memory_has_no_name_and_children_do_not_inherit_it_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_memfd in (True, False):
        if not has_memfd:
            monkeypatch.delattr(os, "memfd_create", raising=False)
        descriptor = rank_mapping.create(2)
        try:
            assert os.fstat(descriptor).st_nlink == 0
            assert not os.get_inheritable(descriptor)
            rank_mapping.attach(descriptor, 2).counters[rank_mapping.RankMapping.counter_index(1)] = 5
            assert rank_mapping.attach(descriptor, 2).counters[rank_mapping.RankMapping.counter_index(1)] == 5
        finally:
            os.close(descriptor)


@pytest.mark.parametrize(("keeps_order", "fences"), [(False, 2), (True, 0)])
def test_processors_that_reorder_get_fences(monkeypatch: pytest.MonkeyPatch, keeps_order: bool, fences: int) -> None:
    """One before this rank's counter is written and one after those of all have been read."""
    fenced: list[None] = []
    monkeypatch.setattr(shared_memory, "KEEPS_ORDER", keeps_order)
    monkeypatch.setattr(shared_memory._Fence, "__call__", lambda _fence: fenced.append(None))
    groups = shared_groups(2)
    sums = together([functools.partial(reduced, group, torch.ones(4)) for group in groups])
    assert all(total.tolist() == [2.0] * 4 for total in sums)
    assert len(fenced) == 2 * fences


def test_a_fence_can_be_passed() -> None:
    fence = shared_memory._Fence()
    fence()
    fence()


def test_the_group_of_one_leaves_everything_as_it_is() -> None:
    x = numbers(0, 2, 3)
    Alone().all_reduce_(x)
    assert torch.equal(x, numbers(0, 2, 3))
    assert Alone().gather(x) == (x,)


def test_measuring_takes_every_rank_through_as_many_sums() -> None:
    groups = shared_groups(2)
    times = together(
        [functools.partial(measure_all_reduce, group, 64, torch.bfloat16, CPU, repeats=100) for group in groups]
    )
    assert all(0 < each.p50_us <= each.p99_us for each in times)
    sums = together([functools.partial(reduced, group, torch.ones(4)) for group in groups])
    assert all(total.tolist() == [2.0] * 4 for total in sums)
