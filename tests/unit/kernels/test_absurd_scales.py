"""A scale that is infinite or no number makes its rows' products no numbers, so that a request ends with an error.

What becomes of a request whose rows are not numbers is in tests/unit/compute/test_failed_sequences.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from layerline.models.held import INTEGERS
from node.native.matrices import NativeMatrix
from node.native.one_product import OneProduct
from tests.fakes.kernel_matrices import SETS, engine, packed
from tests.fakes.stored_rows import SCALES, stored_rows

ROWS, COLUMNS, SPOILT = 48, 512, 21
ABSURD = {"infinite": 0x7C00, "minus infinite": 0xFC00, "no number": 0x7E00}
PLACES = {"F16": [(0, 1.0)], **{name: places for name, places in SCALES.items() if name in INTEGERS}}
"""Of 16-bit numbers in a block."""


def spoilt(storage: str, bits: int, place: int) -> NativeMatrix:
    """A random matrix in which a number of the second block of row SPOILT has these bits."""
    stored = stored_rows(storage, ROWS, COLUMNS)
    offset = GGML_QUANT_SIZES[GGMLQuantizationType[storage]][1] + place
    stored[SPOILT, offset : offset + 2] = np.array([bits], np.uint16).view(np.uint8)
    return packed(storage, stored, COLUMNS)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("absurd", ABSURD)
@pytest.mark.parametrize("storage", PLACES)
def test_it_spoils_the_products_of_its_row_alone(storage: str, absurd: str, digits: int, instruction_set: str) -> None:
    for place, _ in PLACES[storage]:
        matrix = spoilt(storage, ABSURD[absurd], place)
        for rows in (1, 5):
            rows_TI = np.random.default_rng(rows).standard_normal((rows, COLUMNS)).astype(np.float32)
            product = OneProduct(rows_TI, matrix, engine(instruction_set), digits).multiply()
            finite = np.isfinite(product)
            assert not finite[:, SPOILT].any()
            assert finite[:, np.arange(ROWS) != SPOILT].all()
