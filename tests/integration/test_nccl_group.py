"""The group of CUDA ranks as far as it runs without any: its operations over gloo, joined through a nameless file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.system, pytest.mark.slow]

RANK = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
from node.ranks.nccl import NcclGroup
rank, descriptor, count = map(int, sys.argv[1:])
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
store = dist.FileStore(f"/proc/self/fd/{descriptor}", count)
dist.init_process_group("gloo", store=store, world_size=count, rank=rank, timeout=timedelta(seconds=30))
group = NcclGroup(rank, [f"cuda:{n}" for n in range(count)])
for turn in range(2):
    x = torch.full((2, 3), 10.0 * rank + turn)
    group.all_reduce_(x)
    assert x.tolist() == [[30.0 + 3 * turn] * 3] * 2, x
    blocks = group.gather(torch.full((2, 5 - rank), float(rank)).t().contiguous().t())
    if rank:
        assert blocks is None
    else:
        assert [tuple(block.shape) for block in blocks] == [(2, 5), (2, 4), (2, 3)]
        assert all((block == number).all() for number, block in enumerate(blocks))
dist.destroy_process_group()
"""
COUNT = 3
DEADLINE_S = 60.0


def test_its_operations_are_those_of_a_rank_group() -> None:
    descriptor = os.memfd_create("rendezvous")
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(descriptor), str(COUNT)], pass_fds=[descriptor])
        for rank in range(COUNT)
    ]
    try:
        assert [rank.wait(timeout=DEADLINE_S) for rank in ranks] == [0] * COUNT
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
