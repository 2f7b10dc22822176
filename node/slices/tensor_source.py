"""Where weights come from: slices of the stored tensors of one model, checked and counted as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock

from layerline.errors import ModelCorruptError
from layerline.models.card import ModelCard
from layerline.models.read import StoredBlock, TensorReader
from layerline.models.tensor_table import TensorEntry
from node.slices.sides import Side

BLOCK_NUMBERS = 1 << 20  # 4 MiB of float32 a block: large enough for numpy, small beside any matrix
Progress = Callable[[int, int], None]
"""(done_bytes, total_bytes) of the weights as they are held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSlice:
    """Some rows and columns of a tensor, by its canonical name; a vector has no columns.

    `head_order` wants the rows of each head in another order, as `TensorReader.stored_blocks` tells.
    """

    name: str
    rows: Side
    columns: Side | None = None
    head_order: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is held."""
        return tuple(len(side.part) for side in self._sides)

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """The shape that the tensor must have."""
        return tuple(side.length for side in self._sides)

    @property
    def _sides(self) -> tuple[Side, ...]:
        return (self.rows,) if self.columns is None else (self.rows, self.columns)


class TensorSource:
    """The tensors of the model that `reader` has open. May be read from several threads."""

    def __init__(self, card: ModelCard, reader: TensorReader, total_bytes: int, progress: Progress) -> None:
        self._card = card
        self._entries = {entry.name: entry for entry in card.tensors}
        self._reader = reader
        self._total_bytes = total_bytes
        self._progress = progress
        self._progress_lock = Lock()
        self._done_bytes = 0

    def blocks(self, wanted: TensorSlice) -> Iterator[StoredBlock]:
        """A slice in blocks of rows, as it is stored. Whoever holds a block tells `count` how many bytes it became.

        Raises ModelCorruptError if the tensor is missing or misshapen, or its bytes have changed.
        """
        entry = self._entry(wanted)
        rows_per_block = max(1, BLOCK_NUMBERS // entry.shape[-1])
        columns = None if wanted.columns is None else wanted.columns.part
        return self._reader.stored_blocks(
            entry, rows_per_block, wanted.rows.part, columns, head_order=wanted.head_order
        )

    def storage(self, wanted: TensorSlice) -> str:
        """How the tensor of a slice is stored. Raises ModelCorruptError if it is missing or misshapen."""
        return self._entry(wanted).storage

    def count(self, held_bytes: int) -> None:
        """Reports so many further bytes as loaded."""
        with self._progress_lock:
            self._done_bytes += held_bytes
            self._progress(self._done_bytes, self._total_bytes)

    def _entry(self, wanted: TensorSlice) -> TensorEntry:
        entry = self._entries.get(wanted.name)
        if entry is None:
            raise self._corrupt(f"has no tensor {wanted.name}")
        if entry.shape != wanted.whole_shape:
            raise self._corrupt(f"has tensor {wanted.name} with shape {entry.shape}, not {wanted.whole_shape}")
        return entry

    def _corrupt(self, what: str) -> ModelCorruptError:
        return ModelCorruptError(f"Model {self._card.name} {what}.", remedy="Fetch the model anew.")
