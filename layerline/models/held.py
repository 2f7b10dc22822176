"""In which form a matrix is held where it is multiplied as it is stored, and the bytes that it takes then.

Planner and worker both ask here, so that what is counted is what is held. The kernels hold panels of 16 rows, the last
of them filled up; torch holds rows, in what takes less than the numbers that it computes with. Knows the sizes of
blocks by itself, since the `gguf` library takes long to import; a test compares them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from layerline.models.grouped import CELL_COLUMNS, GroupedForm, grouped_form

FLOATS = {"F32": 4, "F16": 2, "BF16": 2}  # bytes of a number; they have no blocks
INTEGERS = {
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "MXFP4": (32, 17),
}  # numbers and bytes of a block
CONVERTED = {
    "bfloat16": "BF16",
    "float32": "F32",
    "int8": "Q8_0",
    "int4": "Q4_1",
}  # what `weights` makes of any storage
EIGHT_BITS = frozenset({"IQ1_S", "IQ2_XXS", "IQ3_XXS", "IQ3_S", "TQ1_0", "TQ2_0"})
"""Storages whose numbers are, in every 32 columns, small integers times one scale, so that 8 bits lose nothing."""
EIGHT_BITS_FORM = "INT8_32_F32"  # what these become
WITHOUT_LOSS = "F32"  # what any other storage becomes
PANEL_ROWS = 16
VECTOR_BYTES = 4  # of a number of a vector or of a logit, where the kernels compute
CHAIN_COLUMNS = 8  # columns of floating-point numbers are filled up to a multiple


_PLAIN = {storage: weights for weights, storage in CONVERTED.items() if storage in FLOATS}


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightForm:
    """What weights are held in: matrices in `weights`, by the kernels or by torch, which computes in `dtype`."""

    dtype: str
    weights: str
    kernels: bool

    def of_router(self) -> WeightForm:
        """The same for what decides on experts, of which a rounded number may choose another."""
        return replace(self, weights="stored")

    def of_latents(self, storage: str, *, apart: bool) -> WeightForm:
        """The same for a matrix in that storage which makes keys or values of latents, or both if not `apart`.

        Torch holds it in the dtype, and the kernels in plain numbers where that for keys has to be turned round.
        """
        if not self.kernels:
            return replace(self, weights=self.dtype)
        if apart:
            return self
        turned = turned_storage(storage, self.weights)
        return replace(self, weights="stored" if turned == storage else _PLAIN[turned])

    def storage(self, storage: str, columns: range, all_columns: int) -> str:
        """What these of all columns of a matrix are held in."""
        if self.kernels:
            return held_storage(storage, self.weights, columns, all_columns)
        return row_storage(storage, self.weights, columns, all_columns, self.dtype)

    def matrix_bytes(self, storage: str, rows: int, columns: int) -> int:
        """Bytes of a matrix that is held in `storage`."""
        return (matrix_bytes if self.kernels else rows_bytes)(storage, rows, columns)

    def vector_bytes(self, numbers: int) -> int:
        """Bytes of a vector."""
        return numbers * (VECTOR_BYTES if self.kernels else FLOATS[CONVERTED[self.dtype]])

    def multiplies(self, storage: str) -> bool:
        """Whether a matrix in that storage is multiplied as it is, at least one that is whole."""
        if self.kernels:
            return is_multiplied(storage)
        return storage in FLOATS or storage in INTEGERS or grouped_form(storage) is not None

    def converts(self, storage: str, held_in: str) -> bool:
        """Whether a matrix that is held in that should be as it is stored, but cannot be."""
        return self.weights == "stored" and storage not in FLOATS and held_in != storage


def block_numbers(storage: str) -> int:
    """How many columns share a block."""
    return 1 if storage in FLOATS else INTEGERS[storage][0]


def divided_by(storage: str) -> int:
    """Of which the columns of a part of a matrix in that storage are a multiple."""
    form = grouped_form(storage)
    if form is None:
        return block_numbers(storage)
    return math.lcm(form.group or 1, form.cell)


def is_multiplied(storage: str) -> bool:
    """Whether kernels multiply a matrix in that storage, at least one that is whole."""
    form = grouped_form(storage)
    return storage in FLOATS or storage in INTEGERS or (form is not None and form.group % CELL_COLUMNS == 0)


def is_in_blocks(storage: str) -> bool:
    """Whether torch holds it in blocks or plain numbers, for which a GPU may have kernels."""
    return grouped_form(storage) is None and storage not in EIGHT_BITS


def held_storage(storage: str, weights: str, columns: range, all_columns: int) -> str:
    """In which storage these of all columns of a matrix are held."""
    wanted = storage if weights == "stored" else CONVERTED[weights]
    if wanted in EIGHT_BITS and columns.start % CELL_COLUMNS == len(columns) % CELL_COLUMNS == 0:
        return EIGHT_BITS_FORM
    form = grouped_form(wanted)
    if form is not None:
        return wanted if is_multiplied(wanted) and _on_groups(form, columns, all_columns) else WITHOUT_LOSS
    if wanted in FLOATS or (wanted in INTEGERS and _on_blocks(wanted, columns, own=wanted == storage)):
        return wanted
    return WITHOUT_LOSS


def turned_storage(storage: str, weights: str) -> str:
    """In which storage the kernels hold a matrix whose columns become rows."""
    wanted = storage if weights == "stored" else CONVERTED[weights]
    return wanted if wanted in FLOATS else WITHOUT_LOSS


def row_storage(storage: str, weights: str, columns: range, all_columns: int, dtype: str) -> str:
    """The same where torch computes in `dtype`: in that, unless another storage takes less; groups of any size do."""
    held, computed = held_storage(storage, weights, columns, all_columns), CONVERTED[dtype]
    form = grouped_form(storage) if weights == "stored" else None
    if form is not None and _on_groups(form, columns, all_columns):
        held = storage
    return held if rows_bytes(held, 1, len(columns)) < rows_bytes(computed, 1, len(columns)) else computed


def rows_bytes(storage: str, rows: int, columns: int) -> int:
    """Bytes of a matrix row by row."""
    if storage in FLOATS:
        return rows * columns * FLOATS[storage]
    if (form := grouped_form(storage)) is not None:
        return rows * form.row_bytes(columns)
    numbers, size = INTEGERS[storage]
    return rows * (columns // numbers) * size


def panel_bytes(storage: str, columns: int) -> int:
    """Bytes of a panel of that many columns."""
    if storage in FLOATS:
        return PANEL_ROWS * -(-columns // CHAIN_COLUMNS) * CHAIN_COLUMNS * FLOATS[storage]
    if (form := grouped_form(storage)) is not None:
        held = columns if form.has_zeros else -(-columns // CHAIN_COLUMNS) * CHAIN_COLUMNS
        return PANEL_ROWS * (form.code_bytes(held) + form.groups(columns) * form.group_bytes)
    numbers, size = INTEGERS[storage]
    return PANEL_ROWS * (columns // numbers) * size


def matrix_bytes(storage: str, rows: int, columns: int) -> int:
    """Bytes of a matrix in panels."""
    return -(-rows // PANEL_ROWS) * panel_bytes(storage, columns)


def _on_blocks(storage: str, columns: range, *, own: bool) -> bool:
    """Whether the columns are whole blocks: of those that are stored, or of new ones."""
    numbers = block_numbers(storage)
    return len(columns) % numbers == 0 and (not own or columns.start % numbers == 0)


def _on_groups(form: GroupedForm, columns: range, all_columns: int) -> bool:
    """Whether the columns begin with a group and are whole cells; all of them, if they lie in another order."""
    if form.ordered and columns != range(all_columns):
        return False
    return columns.start % (form.group or form.cell) == 0 and len(columns) % form.cell == 0
