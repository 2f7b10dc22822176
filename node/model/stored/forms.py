"""Where in a block the parts of its numbers lie: a table of the forms, and nothing that computes.

A number of a block is `scale * step - minimum`. The step is a small integer made of one or two fields, or an entry of a
list that such an integer counts. Numbers that share a scale and a minimum are a group. The forms are ggml's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Scales = Literal["block", "exponent", "nibbles", "sixteen", "eight", "bytes", "split"]
"""How the scales of groups are stored:

    block      one 16-bit number for the block, and perhaps one for its minimum
    exponent   a power of two, by its exponent
    nibbles    beside those, 4 bits for the scale and 4 for the minimum of each group
    sixteen    beside that, 16 scales of 6 bits, of which 2 lie apart
    eight      beside those, 8 scales and 8 minima of 6 bits
    bytes      beside that, a signed byte for each group
    split      beside that, 8 scales of 6 bits, of which the upper 2 come first
"""

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


@dataclass(frozen=True, slots=True)
class Fields:
    """Fields of `bits` bits from byte `offset` on: of a run of bytes the lowest ones, then those above, and so on."""

    offset: int
    bits: int
    run: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """One form: how many numbers and bytes a block has, and where its parts lie."""

    numbers: int
    nbytes: int
    low: Fields
    high: Fields | None = None  # the bits above those of `low`
    zero: int = 0  # the integer that means 0
    signed: bool = False  # the integers are signed bytes
    listed: tuple[int, ...] = ()  # what the integers count
    scales: Scales = "block"
    scale: int = 0  # the byte at which the block's own scale begins
    minimum: int | None = None  # the same of its minimum; None: there is none
    packed: int = 0  # the same of the scales of groups
    group: int = 0  # numbers of a group; 0: the block is one

    @property
    def group_numbers(self) -> int:
        """How many numbers share a scale."""
        return self.group or self.numbers


FORMS = {
    "Q4_0": Form(numbers=32, nbytes=18, low=Fields(2, 4, 16), zero=8),
    "Q4_1": Form(numbers=32, nbytes=20, low=Fields(4, 4, 16), minimum=2),
    "Q5_0": Form(numbers=32, nbytes=22, low=Fields(6, 4, 16), high=Fields(2, 1, 1), zero=16),
    "Q5_1": Form(numbers=32, nbytes=24, low=Fields(8, 4, 16), high=Fields(4, 1, 1), minimum=2),
    "Q8_0": Form(numbers=32, nbytes=34, low=Fields(2, 8, 32), signed=True),
    "Q2_K": Form(numbers=256, nbytes=84, low=Fields(16, 2, 32), scales="nibbles", scale=80, minimum=82, group=16),
    "Q3_K": Form(
        numbers=256,
        nbytes=110,
        low=Fields(32, 2, 32),
        high=Fields(0, 1, 32),
        zero=4,
        scales="sixteen",
        scale=108,
        packed=96,
        group=16,
    ),
    "Q4_K": Form(numbers=256, nbytes=144, low=Fields(16, 4, 32), scales="eight", minimum=2, packed=4, group=32),
    "Q5_K": Form(
        numbers=256,
        nbytes=176,
        low=Fields(48, 4, 32),
        high=Fields(16, 1, 32),
        scales="eight",
        minimum=2,
        packed=4,
        group=32,
    ),
    "Q6_K": Form(
        numbers=256,
        nbytes=210,
        low=Fields(0, 4, 64),
        high=Fields(128, 2, 32),
        zero=32,
        scales="bytes",
        scale=208,
        packed=192,
        group=16,
    ),
    "IQ4_NL": Form(numbers=32, nbytes=18, low=Fields(2, 4, 16), listed=IQ4),
    "IQ4_XS": Form(numbers=256, nbytes=136, low=Fields(8, 4, 16), listed=IQ4, scales="split", packed=2, group=32),
    "MXFP4": Form(numbers=32, nbytes=17, low=Fields(1, 4, 16), listed=MXFP4, scales="exponent"),
}
