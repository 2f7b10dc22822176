"""Stored forms whose scales serve groups of columns: what GPTQ, AWQ, compressed-tensors and FP8 are read as.

A row is the scales of its groups; then, of integers, the code that stands for zero in each group, a byte; then the
codes of the columns. Codes of four bits lie in cells of 32 columns, as Q4_0 has them: the lower halves of 16 bytes are
the first 16 columns. Integers of eight bits are signed, 128 less than they are counted here. The last group may have
fewer columns; rows of integers are whole cells.

A form is called by its codes, the columns of a group (ROW: all) and what its scales are: INT4_128_F16, F8_E4M3_ROW_F32.
In an ORDERED one the columns lie in the order of their groups, which is not the model's.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

INTEGER_BITS = {"INT4": 4, "INT8": 8}
SCALE_BYTES = {"F16": 2, "BF16": 2, "F32": 4}
CELL_COLUMNS = 32  # of integers
GROUP_UNIT = 8  # of which the columns of a group are a multiple
MAX_GROUP = 1 << 19  # columns, so that kernels can say it

_NAME = re.compile(r"(INT4|INT8|F8_E4M3|F8_E5M2)_([1-9][0-9]{0,5}|ROW)_(F16|BF16|F32)(_ORDERED)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupedForm:
    """One of these forms; `group` is how many columns share a scale, 0 if all of a row do."""

    codes: str
    group: int
    scale: str
    ordered: bool = False

    @property
    def storage(self) -> str:
        """What it is called."""
        return f"{self.codes}_{self.group or 'ROW'}_{self.scale}{'_ORDERED' * self.ordered}"

    @property
    def words(self) -> str:
        """What it is, for the person who reads a plan."""
        groups = f"in groups of {self.group}" if self.group else "with a scale a row"
        return f"{self.codes} {groups}{' by act-order' * self.ordered}"

    @property
    def bits(self) -> int:
        """Of a code."""
        return INTEGER_BITS.get(self.codes, 8)

    @property
    def zero(self) -> int:
        """The code that stands for zero unless a group says another."""
        return 1 << (self.bits - 1)

    @property
    def cell(self) -> int:
        """Columns that cannot be taken apart."""
        return CELL_COLUMNS if self.has_zeros else 1

    @property
    def has_zeros(self) -> bool:
        """Whether groups say which code stands for zero."""
        return self.codes in INTEGER_BITS

    @property
    def group_bytes(self) -> int:
        """Of what a group has beside its columns."""
        return SCALE_BYTES[self.scale] + self.has_zeros

    def groups(self, columns: int) -> int:
        """How many groups so many columns have."""
        return -(-columns // self.group) if self.group else 1

    def code_bytes(self, columns: int) -> int:
        """Bytes of the codes of so many columns, which are whole cells."""
        return columns * self.bits // 8

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row."""
        return self.groups(columns) * self.group_bytes + self.code_bytes(columns)

    def columns(self, row_bytes: int) -> int:
        """How many columns a row of so many bytes has."""
        whole = self.group * self.bits // 8 + self.group_bytes
        groups = -(-row_bytes // whole) if self.group else 1
        return (row_bytes - groups * self.group_bytes) * 8 // self.bits


@functools.cache
def grouped_form(storage: str) -> GroupedForm | None:
    """The form that is called so; None for any other storage."""
    found = _NAME.fullmatch(storage)
    if found is None:
        return None
    codes, group, scale, ordered = found.groups()
    columns = 0 if group == "ROW" else int(group)
    if columns % GROUP_UNIT or columns > MAX_GROUP:
        return None
    return GroupedForm(codes=codes, group=columns, scale=scale, ordered=bool(ordered))


def storage_words(storage: str) -> str:
    """What a stored form is called in a sentence."""
    form = grouped_form(storage)
    return storage if form is None else form.words
