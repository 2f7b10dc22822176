"""Reading the weights of an indexed model, tensor by tensor, in blocks of rows that are checked as they pass.

Owns the mapping of the model's files into memory and drops each page once it was read, so that reading never
adds more than a block to the resident memory. Does not know what the numbers are for, nor any torch.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.part_names import GgufPart, part_paths
from layerline.models.quantised.matrix import matrix_of
from layerline.models.storage import columns_of_blocks, columns_to_float32, stored_bytes, to_float32
from layerline.models.stored import sized_bytes
from layerline.models.tensor_table import StoredBytes, StoredPiece, StoredTensor, TensorEntry, stored_places
from layerline.models.unreadable import open_model_file, unreadable

REMEDY = "Leave model files alone while they are in use; try again, or fetch the model anew."


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """Neighbouring rows of a tensor in whole blocks of their storage."""

    first_row: int  # of those that were asked for
    storage: str
    stored: NDArray[np.uint8]  # [rows, bytes]
    columns: range | None  # those of the blocks' numbers that were asked for; None: a vector, with a number a row
    order: NDArray[np.int32] | None = None  # which column of the matrix each column here is; None: they are in order

    def to_float32(self) -> NDArray[np.float32]:
        """The numbers [rows, columns], or [rows] of a vector: without loss, fresh, writable and C-contiguous."""
        if self.columns is None:
            return to_float32(self.storage, self.stored.reshape(-1), (len(self.stored),))
        if self.order is None:
            return columns_to_float32(self.storage, self.stored, self.columns)
        numbers = np.empty((len(self.stored), len(self.order)), np.float32)
        numbers[:, self.order] = columns_to_float32(self.storage, self.stored, range(len(self.order)))
        return np.ascontiguousarray(numbers[:, self.columns.start : self.columns.stop])


class TensorReader:
    """The tensors of one model's files: a GGUF file or a folder of safetensors, as `card` describes them.

    Entering maps the files and compares their sizes with the card's. Leaving unmaps them.
    """

    def __init__(self, path: Path, card: ModelCard) -> None:
        self._path = path
        self._card = card
        self._mappings: dict[str, mmap.mmap] = {}
        self._versions: dict[str, tuple[int, int, int]] = {}
        self._files = ExitStack()

    def __enter__(self) -> TensorReader:
        with ExitStack() as opening:
            for file in sorted({place.file for place in stored_places(self._card.tensors)}):
                self._versions[file] = self._version(file)
                self._mappings[file] = opening.enter_context(_mapped(self._file_path(file)))
            self._check_sizes()
            self._files = opening.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mappings.clear()
        self._files.close()

    def blocks(
        self, entry: TensorEntry, rows_per_block: int, rows: range | None = None, columns: range | None = None
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yields (first_row, float32 array [rows, ...]) in order; each array is fresh, writable, and yours.

        Every storage type becomes float32 without loss. Otherwise as `stored_blocks`.
        """
        for block in self.stored_blocks(entry, rows_per_block, rows, columns):
            yield block.first_row, block.to_float32()

    def stored_blocks(
        self,
        entry: TensorEntry,
        rows_per_block: int,
        rows: range | None = None,
        columns: range | None = None,
        *,
        head_order: Sequence[int] = (),
    ) -> Iterator[StoredBlock]:
        """Yields the tensor in blocks of rows as they are stored, in order; each is a copy, and yours.

        A matrix comes in blocks of at most `rows_per_block` rows, a vector whole. Of `rows` and `columns`, if given,
        only those come, the first of `rows` as row 0; of a matrix nothing else is read but what shares a block of its
        storage with them. `head_order` wants the rows of each head, of so many neighbours, in another order: row i of a
        head is what row `head_order[i]` is in the tensor. `rows` must be whole heads then, as they must where the file
        itself has another order (`rope_pairs`), which is undone; so many rows come at least.

        The numbers may be trusted once the iterator is exhausted. Only then has the hash of a stored tensor been seen
        or, of one that was read in part, that nobody has written to its file since it was opened. Raises
        ModelCorruptError if the bytes are not those that were indexed.
        """
        assert rows_per_block > 0
        rows = range(entry.shape[0]) if rows is None else rows
        order = _stored_order(entry, head_order)
        if len(entry.shape) == 1:
            yield self._vector(entry, order, rows)
            return
        columns = range(entry.shape[1]) if columns is None else columns
        block_rows = max(1, rows_per_block // len(order)) * len(order)
        begin = 0  # the first of the entry's rows in this range
        for part in entry.ranges:
            wanted = range(max(rows.start, begin), min(rows.stop, begin + part.rows))
            if wanted:
                own = part.parts(range(wanted.start - begin, wanted.stop - begin))
                for block in self._range_blocks(part.tensor, own, columns, block_rows):
                    first_row = block.first_row + wanted.start - rows.start
                    yield replace(block, first_row=first_row, stored=_reordered(block.stored, order))
            begin += part.rows

    def _range_blocks(
        self, tensor: StoredTensor, rows: Sequence[range], columns: range, block_rows: int
    ) -> Iterator[StoredBlock]:
        """Blocks of these rows and columns of a stored matrix, the first row as row 0."""
        if tensor.pieces:
            yield from self._made_blocks(tensor, rows, columns, block_rows)
            return
        _check_size(tensor)
        whole = (list(rows), columns) == ([range(tensor.rows)], range(tensor.shape[-1]))
        digest = hashlib.sha256() if whole else None
        for first, block in _blocks(rows, block_rows):
            stored, part = self._read(tensor, block, columns, digest)
            yield StoredBlock(first, tensor.storage, stored, part)
        self._check_unchanged(tensor, digest)

    def _made_blocks(
        self, tensor: StoredTensor, rows: Sequence[range], columns: range, block_rows: int
    ) -> Iterator[StoredBlock]:
        """The same of a matrix in pieces, which are read whole."""
        matrix = matrix_of(tensor, {piece.role: self._piece(piece) for piece in tensor.pieces})
        for first, block in _blocks(rows, block_rows):
            stored, own = matrix.rows(range(block.start, block[-1] + 1))[:: block.step], columns
            if matrix.order is None:
                stored, own = columns_of_blocks(tensor.storage, stored, columns)
            yield StoredBlock(first, tensor.storage, stored, own, matrix.order)

    def _piece(self, piece: StoredPiece) -> NDArray[np.uint8]:
        """All bytes of a piece, which are those that were indexed."""
        if piece.nbytes != sized_bytes(piece.name, piece.file, piece.storage, piece.shape):
            raise _changed(piece, "its size does not go with its shape")
        digest = hashlib.sha256()
        with self._opened(piece, piece.offset, piece.nbytes, digest) as whole:
            stored = np.frombuffer(whole, np.uint8).copy()
        self._check_unchanged(piece, digest)
        return stored

    def _vector(self, entry: TensorEntry, order: list[int], rows: range) -> StoredBlock:
        """In float32: a vector is one row of its storage, of which no part can be put in order."""
        parts = []
        for part in entry.ranges:
            _check_size(part.tensor)
            digest = hashlib.sha256()
            stored, columns = self._read(part.tensor, range(1), range(part.tensor.rows), digest)
            self._check_unchanged(part.tensor, digest)
            numbers = columns_to_float32(part.tensor.storage, stored, columns).reshape(-1, 1)
            parts += [numbers[own.start : own.stop : own.step] for own in part.parts(range(part.rows))]
        numbers = np.concatenate(parts)
        if entry.minus_exponential:
            numbers = -np.exp(numbers)
        if entry.added:
            numbers = numbers + np.float32(entry.added)
        wanted = np.ascontiguousarray(_reordered(numbers, order)[rows.start : rows.stop])
        return StoredBlock(0, "F32", wanted.view(np.uint8), None)

    def _read(
        self, tensor: StoredTensor, rows: range, columns: range, digest: hashlib._Hash | None
    ) -> tuple[NDArray[np.uint8], range]:
        """The blocks of those rows that hold `columns` [rows, bytes], and which of their numbers those are.

        Of a vector row 0 is all there is.
        """
        row_bytes = stored_bytes(tensor.storage, tensor.shape[-1:])
        first, end = rows.start, rows[-1] + 1
        with self._opened(tensor, tensor.offset + first * row_bytes, (end - first) * row_bytes, digest) as stored:
            own = np.frombuffer(stored, np.uint8).reshape(end - first, -1)[:: rows.step]
            return columns_of_blocks(tensor.storage, own, columns)

    @contextmanager
    def _opened(
        self, place: StoredBytes, offset: int, nbytes: int, digest: hashlib._Hash | None
    ) -> Iterator[memoryview]:
        """Some bytes of a file, which are not kept in memory after that."""
        mapping = self._mappings[place.file]
        if mapping.size() < offset + nbytes:
            raise _changed(place, "its file is shorter")
        with memoryview(mapping) as whole, whole[offset : offset + nbytes] as stored:
            if digest is not None:
                digest.update(stored)
            yield stored
        _drop_pages(mapping, offset, nbytes)

    def _file_path(self, file: str) -> Path:
        if self._card.container == "safetensors":
            return self._path / file
        part, paths = GgufPart.of(file), part_paths(self._path)
        return paths[part.number - 1] if part and part.count == len(paths) else self._path

    def _check_unchanged(self, tensor: StoredBytes, digest: hashlib._Hash | None) -> None:
        """By the hash of all its bytes, or else by the time at which its file was last written to."""
        if digest is not None and digest.hexdigest() != tensor.sha256:
            raise _changed(tensor, "its hash is another")
        if digest is None and self._version(tensor.file) != self._versions[tensor.file]:
            raise _changed(tensor, "its file was written to")

    def _version(self, file: str) -> tuple[int, int, int]:
        path = self._file_path(file)
        try:
            stat = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def _check_sizes(self) -> None:
        for tensor in stored_places(self._card.tensors):
            if tensor.end > len(self._mappings[tensor.file]):
                raise _changed(tensor, "its file is shorter")
        size_bytes = sum(len(mapping) for mapping in self._mappings.values())
        if size_bytes != self._card.size_bytes:
            message = f"{self._path.name} has {size_bytes} bytes, {self._card.size_bytes} when it was indexed"
            raise ModelCorruptError(f"{message}: it has changed since it was indexed.", remedy=REMEDY)


def _blocks(rows: Sequence[range], block_rows: int) -> Iterator[tuple[int, range]]:
    """The same rows, at most so many at a time, and how many of them come before."""
    before = 0
    for part in rows:
        for first in range(0, len(part), block_rows):
            yield before + first, part[first : first + block_rows]
        before += len(part)


def _stored_order(entry: TensorEntry, head_order: Sequence[int]) -> list[int]:
    """Which row of a head as it is stored each row of a head is that is wanted.

    llama.cpp's converter interleaves the two halves of each head of some tensors.
    """
    rows = entry.rope_pairs
    assert not (rows and head_order) or len(head_order) == rows, "the heads of a tensor have one size"
    wanted = list(head_order) or list(range(max(1, rows)))
    return [2 * (row % (rows // 2)) + row // (rows // 2) for row in wanted] if rows else wanted


def _reordered(rows: NDArray[Any], order: list[int]) -> NDArray[Any]:
    """The rows of each head in `order`."""
    if order == list(range(len(order))):
        return rows
    heads = rows.reshape(-1, len(order), *rows.shape[1:])
    return heads[:, order].reshape(rows.shape)


def _check_size(tensor: StoredTensor) -> None:
    if tensor.nbytes != stored_bytes(tensor.storage, tensor.shape):
        raise _changed(tensor, "its size does not go with its shape")


def _mapped(path: Path) -> mmap.mmap:
    try:
        with open_model_file(path) as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise unreadable(path, error) from error


def _drop_pages(mapping: mmap.mmap, offset: int, nbytes: int) -> None:
    """Gives the pages of a range back to the system, which keeps them cached but no longer as ours."""
    if hasattr(mmap, "MADV_DONTNEED"):
        start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        mapping.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)


def _changed(tensor: StoredBytes, how: str) -> ModelCorruptError:
    where = f"Tensor {tensor.name} of {tensor.file}"
    return ModelCorruptError(f"{where} has changed since it was indexed: {how}.", remedy=REMEDY)
