"""The memory that the CPU ranks of a stage share: where in it each has what, making it, and looking at it.

Owns the layout and the file. The file has no name, so that nothing is left of it once the last process that has its
descriptor is gone, whatever that one died of. Does not know what is written, nor any torch.

A page of counters comes first, each in a cache line of its own, then two slots for each rank.
"""

from __future__ import annotations

import mmap
import os
import tempfile

from layerline.errors import StageFailedError

MAX_RANKS = 64
LINE_BYTES = 64  # of a cache line
SLOT_BYTES = 1 << 20
_MAGIC = b"layerline ranks 1"
_COUNTERS_BYTES = 8192  # the first line has the magic and the count, those after it a counter each
_SLOT_STRIDE_BYTES = LINE_BYTES + SLOT_BYTES
_REMEDY = "Load the stage anew."


def mapping_bytes(count: int) -> int:
    """The size of the memory of `count` ranks."""
    return _COUNTERS_BYTES + 2 * count * _SLOT_STRIDE_BYTES


def create(count: int) -> int:
    """The descriptor of fresh memory for `count` ranks, which children inherit only where they are passed it.

    Raises OSError where there is no room. Whoever calls closes it.
    """
    assert 0 < count <= MAX_RANKS
    descriptor = _nameless_file()
    try:
        os.ftruncate(descriptor, mapping_bytes(count))
        os.write(descriptor, _head(count))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def attach(descriptor: int, count: int) -> RankMapping:
    """The memory behind `descriptor`, which may be closed then. StageFailedError if it is not that of `count` ranks."""
    try:
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes != mapping_bytes(count):
            what = f"has {size_bytes} bytes, but {count} ranks need {mapping_bytes(count)}"
            raise StageFailedError(f"The memory that the ranks share {what}.", remedy=_REMEDY)
        memory = mmap.mmap(descriptor, size_bytes)
    except OSError as error:
        message = f"The memory that the ranks share cannot be reached: {error}."
        raise StageFailedError(message, remedy=_REMEDY) from error
    if memory[: len(_head(count))] != _head(count):
        raise StageFailedError(f"The memory that was passed is not that of {count} ranks.", remedy=_REMEDY)
    return RankMapping(memory)


class RankMapping:
    """The memory as it is seen by one process; unmapped when nothing refers to it or its views any more."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._whole = memoryview(memory)
        self.counters = self._whole[:_COUNTERS_BYTES].cast("q")
        """Whole numbers, of which each rank has that at `counter_index`; read and written in one piece."""

    @staticmethod
    def counter_index(rank: int) -> int:
        """Where in `counters` the one of `rank` is."""
        return (rank + 1) * LINE_BYTES // 8

    def note(self, rank: int, turn: int) -> memoryview:
        """A few whole numbers that belong to the slot."""
        start = self._slot_start(rank, turn)
        return self._whole[start : start + LINE_BYTES].cast("q")

    def slot(self, rank: int, turn: int) -> memoryview:
        """The SLOT_BYTES of `rank` for every other (`turn` 0 or 1) of its operations."""
        start = self._slot_start(rank, turn) + LINE_BYTES
        return self._whole[start : start + SLOT_BYTES]

    @staticmethod
    def _slot_start(rank: int, turn: int) -> int:
        return _COUNTERS_BYTES + (2 * rank + turn) * _SLOT_STRIDE_BYTES


def _head(count: int) -> bytes:
    return _MAGIC + count.to_bytes(2, "big")


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("layerline-ranks")
    descriptor, path = tempfile.mkstemp(prefix="layerline-ranks-")
    os.unlink(path)
    return descriptor
