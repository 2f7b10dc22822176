"""Where the tensors of a model lie: as its container stores them, and as the model consists of them.

They are not the same: one stored tensor may hold the rows of several tensors of the model (queries, keys and values in
one matrix; all experts of a layer in one), and one tensor of the model may be made of several stored ones. A quantised
matrix of a folder is one stored tensor in pieces: its codes, their scales and what else is needed lie apart.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from layerline.checks import require

MOST_BYTES = 1 << 56  # far over any disk, and a number that every wire and float can have


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBytes:
    """What a container names and places; `shape` is logical, [out, in] for a matrix."""

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

    def item(self, number: int) -> Self:
        """One of those that lie one after the other along the first side."""
        nbytes = self.nbytes // self.shape[0]
        offset = self.offset + number * nbytes
        return replace(self, name=f"{self.name}[{number}]", shape=self.shape[1:], offset=offset, nbytes=nbytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPiece(StoredBytes):
    """What a container stores of a matrix in pieces; `role` says which piece it is."""

    role: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor(StoredBytes):
    """One tensor that a container stores: by itself, or in the pieces of which `recipe` makes it.

    One in pieces has no place of its own: `storage` is what it is read as, `nbytes` those of all pieces, and `sha256`
    covers theirs.
    """

    recipe: str = ""
    pieces: tuple[StoredPiece, ...] = ()

    @property
    def places(self) -> tuple[StoredBytes, ...]:
        """What is read of it."""
        return self.pieces or (self,)

    def hashed(self, hashes: Mapping[StoredBytes, str]) -> StoredTensor:
        """The same with the hashes of what is read of it."""
        if not self.pieces:
            return replace(self, sha256=hashes[self])
        pieces = tuple(replace(piece, sha256=hashes[piece]) for piece in self.pieces)
        content = json.dumps([self.recipe, [[piece.role, piece.storage, piece.sha256] for piece in pieces]])
        return replace(self, pieces=pieces, sha256=hashlib.sha256(content.encode()).hexdigest())

    def matrix(self, number: int) -> StoredTensor:
        """One of several matrices or vectors that are stored as one, as if it were stored by itself."""
        if not self.pieces:
            return self.item(number)
        pieces = tuple(piece.item(number) for piece in self.pieces)
        nbytes = sum(piece.nbytes for piece in pieces)
        return replace(self, name=f"{self.name}[{number}]", shape=self.shape[1:], nbytes=nbytes, pieces=pieces)

    @property
    def rows(self) -> int:
        """How many rows there are, those of all matrices one after the other; of a vector its numbers."""
        return self.shape[0] if len(self.shape) == 1 else math.prod(self.shape[:-1])


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRange:
    """Rows of a stored tensor: groups of neighbours, each of which begins `step` rows after the one before it."""

    tensor: StoredTensor
    first_row: int
    rows: int
    group: int = 1
    step: int = 1

    def __post_init__(self) -> None:
        require(self.first_row >= 0 and self.rows > 0 and 0 < self.group <= self.step, "rows out of range")
        require(self._row(self.rows - 1) < self.tensor.rows, "rows out of range")

    def parts(self, rows: range) -> list[range]:
        """Which rows of the stored tensor some neighbours of these are."""
        if self.group in (1, self.step):
            step = self.step if self.group == 1 else 1
            return [range(self._row(rows.start), self._row(rows.stop - 1) + 1, step)]
        edges = range(rows.start // self.group * self.group, rows.stop, self.group)
        pieces = (range(max(first, rows.start), min(first + self.group, rows.stop)) for first in edges)
        return [range(self._row(piece.start), self._row(piece.start) + len(piece)) for piece in pieces]

    def _row(self, number: int) -> int:
        return self.first_row + number // self.group * self.step + number % self.group

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
    added: float = 0.0  # to each number of a vector
    minus_exponential: bool = False  # of each number of a vector, what is stored being x, -e^x is meant

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


def stored_places(entries: tuple[TensorEntry, ...]) -> tuple[StoredBytes, ...]:
    """All that is read of the files for `entries`, once."""
    return tuple(place for tensor in stored_tensors(entries) for place in tensor.places)
