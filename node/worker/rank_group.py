"""How a rank's process joins the others of its stage: by what their devices have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from node.ranks.group import Alone, RankGroup


@contextmanager
def joined(shared: int | None, rank: int, devices: Sequence[str], *, deadline_s: float) -> Iterator[RankGroup]:
    """The group of `devices` as `rank` sees it, for the time of the block.

    `shared` is the descriptor that all of them have: of a mapping between CPU ranks, of an empty file between CUDA
    ranks. Raises StageFailedError if the others cannot be joined.
    """
    if shared is None:
        yield Alone()
        return
    from node.ranks import rank_mapping  # noqa: PLC0415  # all of these import torch
    from node.ranks.nccl import nccl_group  # noqa: PLC0415
    from node.ranks.shared_memory import SharedMemoryGroup  # noqa: PLC0415

    if devices[rank].startswith("cpu"):
        yield SharedMemoryGroup(rank_mapping.attach(shared, len(devices)), rank, devices, deadline_s=deadline_s)
    else:
        with nccl_group(Path(f"/proc/self/fd/{shared}"), rank, devices, deadline_s=deadline_s) as group:
            yield group
