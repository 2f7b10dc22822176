"""The group of CPU ranks: blocks of numbers go through memory that all of them have mapped.

Owns the order of reading and writing. An operation has a number, the same on every rank. A rank writes its block into
its slot of that turn and then its counter; once every counter has come so far, each rank reads all blocks. There are
two slots because a rank may be an operation ahead of one that still reads, but never two: that one's counter would be
missing. Nobody waits for a lock, so that nobody who dies holds one.

Ranks wait by looking. After a while they sleep between looks, for as short as the system can: a rank that shares its
core with the one it waits for must let it go on.

Shapes: T rows, I numbers in each, N numbers in all.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from layerline.errors import StageFailedError
from node.ranks.group import DEADLINE_S
from node.ranks.rank_mapping import SLOT_BYTES, RankMapping

LOOKS = 3000  # before sleeping in between: a few tenths of a millisecond
KEEPS_ORDER = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")


class SharedMemoryGroup:
    """Rank `rank` of those on `devices`, over `mapping`. `clock` is monotonic, in seconds.

    After `looks` at the counter of a rank that is late, it gives up its turn on the processor between them.
    """

    def __init__(
        self,
        mapping: RankMapping,
        rank: int,
        devices: Sequence[str],
        *,
        deadline_s: float = DEADLINE_S,
        looks: int = LOOKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rank = rank
        self.count = len(devices)
        self._devices = devices
        self._deadline_s = deadline_s
        self._looks = looks
        self._clock = clock
        self._operation = 0
        self._counters = mapping.counters
        self._places = [mapping.counter_index(other) for other in range(self.count)]
        self._notes = [[mapping.note(other, turn) for other in range(self.count)] for turn in range(2)]
        self._bytes = [
            [torch.frombuffer(mapping.slot(other, turn), dtype=torch.uint8) for other in range(self.count)]
            for turn in range(2)
        ]
        self._typed: dict[torch.dtype, list[list[Tensor]]] = {}
        self._fence = _no_fence if KEEPS_ORDER else _Fence()

    def all_reduce_(self, x: Tensor) -> None:
        """Sums block by block, in the order of the ranks and in float32, rounding once."""
        slots = self._typed.get(x.dtype) or self._typed_slots(x.dtype)
        x_N = x.view(-1)
        most = SLOT_BYTES // x.element_size()
        if x_N.shape[0] <= most:
            self._reduce_(x_N, slots)
            return
        for block_N in torch.split(x_N, most):
            self._reduce_(block_N, slots)

    def gather(self, x_TI: Tensor) -> tuple[Tensor, ...] | None:
        """Rows of every rank, which may be of different lengths: how many bytes there are is noted beside the slot."""
        mine = x_TI.contiguous().view(-1).view(torch.uint8)
        sizes = self._exchange(mine[:SLOT_BYTES], mine.numel())
        wholes = [torch.empty(size if self.rank == 0 else 0, dtype=torch.uint8) for size in sizes]
        for start in range(0, max(sizes), SLOT_BYTES):
            if start:
                self._exchange(mine[start : start + SLOT_BYTES], mine.numel())
            if self.rank == 0:
                for whole, slot in zip(wholes, self._bytes[self._operation & 1], strict=True):
                    part = whole[start : start + SLOT_BYTES]
                    part.copy_(slot[: part.shape[0]])
        if self.rank != 0:
            return None
        return tuple(whole.view(x_TI.dtype).view(x_TI.shape[0], -1) for whole in wholes)

    def _reduce_(self, block_N: Tensor, slots: list[list[Tensor]]) -> None:
        turn = (self._operation + 1) & 1
        size = block_N.shape[0]
        parts = [slot.narrow(0, 0, size) for slot in slots[turn]]
        parts[self.rank].copy_(block_N)
        self._meet()
        if self.count == 2:
            torch.add(parts[0], parts[1], out=block_N)
            return
        sum_N = parts[0].float()
        for part in parts[1:]:
            sum_N = sum_N + part
        block_N.copy_(sum_N)

    def _exchange(self, block: Tensor, noted: int) -> list[int]:
        """Puts a block and a number where the others can read them; everybody's numbers."""
        turn = (self._operation + 1) & 1
        self._bytes[turn][self.rank][: block.shape[0]].copy_(block)
        notes = self._notes[turn]
        notes[self.rank][0] = noted
        self._meet()
        return [note[0] for note in notes]

    def _meet(self) -> None:
        """Says that this rank's slot is written, and waits until everybody's is."""
        self._operation = operation = self._operation + 1
        counters = self._counters
        self._fence()
        counters[self._places[self.rank]] = operation
        for place in self._places:
            looks = 0
            while counters[place] < operation:
                looks += 1
                if looks > self._looks:
                    self._wait(place)
        self._fence()

    def _wait(self, place: int) -> None:
        until_s = self._clock() + self._deadline_s
        while self._counters[place] < self._operation:
            if self._clock() >= until_s:
                raise self._silent()
            time.sleep(0)

    def _silent(self) -> StageFailedError:
        late = [rank for rank, place in enumerate(self._places) if self._counters[place] < self._operation]
        names = ", ".join(f"{rank} ({self._devices[rank]})" for rank in late)
        message = f"Rank {names} of the stage did not take part in a step within {self._deadline_s:g} s."
        return StageFailedError(message, remedy="If the machine is overloaded, close other programs; load it again.")

    def _typed_slots(self, dtype: torch.dtype) -> list[list[Tensor]]:
        self._typed[dtype] = [[slot.view(dtype) for slot in slots] for slots in self._bytes]
        return self._typed[dtype]


def _no_fence() -> None:
    """Processors that keep stores, and loads, in their order need none."""


class _Fence:
    """What was read and written before it is done before what comes after, also on processors that reorder.

    A lock taken keeps what comes after from going before, one released what came before from going after; twice in
    turn nothing gets past both.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __call__(self) -> None:
        for _ in range(2):
            with self._lock:
                pass
