"""Where the tensors of a model lie: as its container stores them, and as the model consists of them.

They are not the same: one stored tensor may hold the rows of several tensors of the model (queries, keys and values in
one matrix; all experts of a layer in one), and one tensor of the model may be made of several stored ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerline.checks import require

MOST_BYTES = 1 << 56  # far over any disk, and a number that every wire and float can have


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """One tensor as its container names and places it; `shape` is logical, [out, in] for a matrix."""

    name: str
    file: str  # relative to the model's folder, or the GGUF file's own name
    storage: str  # the container's type: "F32", "F16", "BF16", "Q4_1", …
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    sha256: str = ""  # of its bytes, once they have been read

    def __post_init__(self) -> None:
        require(all(0 <= side < MOST_BYTES for side in self.shape), "shape is out of range")
        require(0 <= self.offset < MOST_BYTES and 0 <= self.nbytes < MOST_BYTES, "offset or nbytes is out of range")

    @property
    def end(self) -> int:
        """The offset of the first byte after it."""
        return self.offset + self.nbytes

    @property
    def rows(self) -> int:
        """How many rows there are, those of all matrices one after the other; of a vector its numbers."""
        return self.shape[0] if len(self.shape) == 1 else math.prod(self.shape[:-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRange:
    """Neighbouring rows of a stored tensor."""

    tensor: StoredTensor
    first_row: int
    rows: int

    def __post_init__(self) -> None:
        require(self.first_row >= 0 and 0 < self.rows <= self.tensor.rows - self.first_row, "rows out of range")

    @classmethod
    def whole(cls, tensor: StoredTensor) -> RowRange:
        """All rows of `tensor`."""
        return cls(tensor=tensor, first_row=0, rows=tensor.rows)

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows."""
        return self.rows == self.tensor.rows


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorEntry:
    """One tensor of the model, [out, in] or a vector: the rows of `ranges`, one after the other."""

    name: str
    shape: tuple[int, ...]
    ranges: tuple[RowRange, ...]
    rope_pairs: int = 0  # rows of a head, if they are in GGUF-llama order (pairs interleaved) and must be put back

    def __post_init__(self) -> None:
        require(len(self.shape) in (1, 2), "a tensor is neither a matrix nor a vector")
        require(sum(part.rows for part in self.ranges) == self.shape[0], "rows of a tensor do not go with its shape")
        require(len({part.tensor.storage for part in self.ranges}) == 1, "a tensor is stored in several types")
        for part in self.ranges:
            columns = part.tensor.shape[1:][-1:]  # none of a vector
            require(columns == self.shape[1:], "columns of a tensor do not go with its shape")

    @property
    def storage(self) -> str:
        """How its numbers are stored."""
        return self.ranges[0].tensor.storage

    @property
    def stored_names(self) -> str:
        """What the container calls the tensors it is made of."""
        return ", ".join(dict.fromkeys(part.tensor.name for part in self.ranges))

    @property
    def nbytes(self) -> int:
        """Bytes that its rows take as they are stored."""
        return sum(part.tensor.nbytes // part.tensor.rows * part.rows for part in self.ranges)


def stored_tensors(entries: tuple[TensorEntry, ...]) -> tuple[StoredTensor, ...]:
    """Every stored tensor that `entries` are made of, once."""
    return tuple(dict.fromkeys(part.tensor for entry in entries for part in entry.ranges))
