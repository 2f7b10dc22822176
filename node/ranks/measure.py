"""How long the ranks of a group take to sum a row: what the planner weighs tensor parallel with."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from node.ranks.group import RankGroup

WARM_UPS = 200
REPEATS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class AllReduceTimes:
    """Microseconds of one all-reduce: half of them take at most `p50_us`, all but a hundredth at most `p99_us`."""

    p50_us: float
    p99_us: float


def measure_all_reduce(
    group: RankGroup, values: int, dtype: torch.dtype, device: torch.device, repeats: int = REPEATS
) -> AllReduceTimes:
    """Sums `values` numbers `repeats` times; to be called on every rank of `group` at the same time.

    What is measured is the all-reduce as it is felt while all ranks come to it together.
    """
    x = torch.zeros(values, dtype=dtype, device=device)
    for _ in range(WARM_UPS):
        group.all_reduce_(x)
    times_ns = sorted(_once_ns(group, x) for _ in range(repeats))
    return AllReduceTimes(p50_us=times_ns[repeats // 2] / 1e3, p99_us=times_ns[repeats * 99 // 100] / 1e3)


@torch.inference_mode()
def _once_ns(group: RankGroup, x: torch.Tensor) -> int:
    started_ns = time.perf_counter_ns()
    group.all_reduce_(x)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter_ns() - started_ns
