"""The group of CUDA ranks: NCCL, with its rendezvous in a file and its sockets on the loopback interface.

Owns joining and leaving. Nothing of it can be reached from outside the machine. NCCL sums each number once and hands
the sum on, so that all ranks have the same bits. Knows NCCL by name only: what is done with the group is the same for
every back end of torch.distributed.

Shapes: T rows, I numbers in each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from layerline.errors import StageFailedError
from node.ranks.group import DEADLINE_S

REMEDY = "Load the stage anew; if it happens again, give the node one device with --device."


@contextmanager
def nccl_group(
    rendezvous: Path, rank: int, devices: Sequence[str], *, deadline_s: float = DEADLINE_S
) -> Iterator[NcclGroup]:
    """Joins the others, who give the same `rendezvous`, the absolute path of an empty file; leaves them at the end.

    A rank that is silent for `deadline_s` ends the processes of the others: what runs on a GPU cannot be given up.
    """
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
    device = torch.device(devices[rank])
    with _typed(rank, devices):
        torch.cuda.set_device(device)
        dist.init_process_group(
            "nccl",
            init_method=f"file://{rendezvous}",
            world_size=len(devices),
            rank=rank,
            timeout=timedelta(seconds=deadline_s),
            device_id=device,
        )
    try:
        yield NcclGroup(rank, devices)
    finally:
        dist.destroy_process_group()


class NcclGroup:
    """Rank `rank` of those on `devices`; made by `nccl_group`."""

    def __init__(self, rank: int, devices: Sequence[str]) -> None:
        self.rank = rank
        self.count = len(devices)
        self._devices = devices

    def all_reduce_(self, x: Tensor) -> None:
        """Returns once the sum is queued behind what the device has to do."""
        with _typed(self.rank, self._devices):
            dist.all_reduce(x)

    def gather(self, x_TI: Tensor) -> tuple[Tensor, ...] | None:
        """Tells all how wide each block is, then sends the blocks as they are."""
        with _typed(self.rank, self._devices):
            widths = torch.empty(self.count, dtype=torch.int64, device=x_TI.device)
            dist.all_gather_into_tensor(widths, torch.tensor([x_TI.shape[1]], device=x_TI.device))
            if self.rank != 0:
                dist.send(x_TI.contiguous(), dst=0)
                return None
            blocks = [x_TI]
            for rank, width in enumerate(widths.tolist()[1:], 1):
                blocks.append(x_TI.new_empty(x_TI.shape[0], width))
                dist.recv(blocks[-1], src=rank)
            return tuple(blocks)


@contextmanager
def _typed(rank: int, devices: Sequence[str]) -> Iterator[None]:
    try:
        yield
    except (dist.DistError, torch.cuda.CudaError) as error:
        message = f"Rank {rank} ({devices[rank]}) of the stage cannot reach the others: {error}."
        raise StageFailedError(message, remedy=REMEDY) from error
