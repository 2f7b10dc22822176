"""What each rank of a stage is started with: its number, its threads, and descriptors to speak with the others.

The ranks of one stage have a file in memory in common, and a socket pair between rank 0 and each other. Neither has a
name, so nothing is left of them when the last process that has them has ended, however it ends.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from node.pipe import Start
from node.ranks import rank_mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSeat:
    """One rank's own part of its `Start`; `shared` and `lines` are descriptors, good while the seats are held."""

    rank: int
    device: str
    threads: int
    shared: int | None
    lines: tuple[int, ...]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What its process must be given."""
        return self.lines if self.shared is None else (self.shared, *self.lines)

    def start_of(self, start: Start) -> Start:
        """What this rank is told, where all are told `start`."""
        return replace(start, rank=self.rank, threads=self.threads, shared=self.shared, lines=self.lines)


@contextmanager
def rank_seats(threads: Mapping[str, int]) -> Iterator[tuple[RankSeat, ...]]:
    """A seat at each device in `threads`, in order; this process's own descriptors are closed with the block.

    Raises OSError if there are not so many.
    """
    devices = tuple(threads)
    with ExitStack() as held:
        shared = _shared(devices, held)
        pairs = [_socket_pair(held) for _ in devices[1:]]
        lines = [tuple(near for near, _ in pairs), *((far,) for _, far in pairs)]
        yield tuple(
            RankSeat(rank=rank, device=device, threads=threads[device], shared=shared, lines=lines[rank])
            for rank, device in enumerate(devices)
        )


def _shared(devices: Sequence[str], held: ExitStack) -> int | None:
    """What CPU ranks compute through, or an empty file in which CUDA ranks find each other."""
    if len(devices) == 1:
        return None
    on_cpu = devices[0].startswith("cpu")
    descriptor = rank_mapping.create(len(devices)) if on_cpu else os.memfd_create("layerline-rendezvous")
    held.callback(os.close, descriptor)
    return descriptor


def _socket_pair(held: ExitStack) -> tuple[int, int]:
    near, far = (held.enter_context(end) for end in socket.socketpair())
    return near.fileno(), far.fileno()
