"""Forms of few bits have in 8 bits the numbers that the `gguf` library makes of them, to the bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from layerline.models.held import EIGHT_BITS, EIGHT_BITS_FORM, held_storage, rows_bytes
from layerline.models.read import StoredBlock
from layerline.models.storage import columns_to_float32, to_float32
from node.slices.stored_rows import in_storage
from tests.fakes.kernel_matrices import SETS, packed, unpacked
from tests.fakes.stored_rows import stored_rows

OTHERS = ("IQ1_M", "IQ2_XS", "IQ2_S")
"""Forms that nobody multiplies either, whose scales serve 16 columns."""


def bits(numbers: NDArray[np.float32]) -> NDArray[np.uint32]:
    return np.ascontiguousarray(numbers).view(np.uint32)


def in_eight_bits(storage: str, stored: NDArray[np.uint8], columns: range) -> NDArray[np.uint8]:
    return in_storage(StoredBlock(0, storage, stored, columns), EIGHT_BITS_FORM)


@pytest.mark.parametrize("storage", sorted(EIGHT_BITS))
def test_any_bits_at_all_become_the_numbers_that_gguf_has(storage: str) -> None:
    """Every list and scale there is, among them some that are no numbers."""
    size = GGML_QUANT_SIZES[GGMLQuantizationType[storage]][1]
    stored = np.random.default_rng(4).integers(0, 256, (500, 4 * size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = to_float32(storage, stored.reshape(-1), (500, 1024))
        made = in_eight_bits(storage, stored, range(1024))
        found = columns_to_float32(EIGHT_BITS_FORM, made, range(1024))
    assert made.nbytes == rows_bytes(EIGHT_BITS_FORM, 500, 1024)
    real = ~np.isnan(expected)
    assert 0.9 < real.mean() < 1
    assert np.array_equal(np.isnan(found), ~real)
    assert np.array_equal(bits(found[real]), bits(expected[real]))


@pytest.mark.parametrize("columns", [range(512), range(32, 320), range(256, 512), range(448, 480)])
@pytest.mark.parametrize("storage", sorted(EIGHT_BITS))
def test_columns_that_are_whole_groups(storage: str, columns: range) -> None:
    stored = stored_rows(storage, 5, 512)
    assert held_storage(storage, "stored", columns, 512) == EIGHT_BITS_FORM
    made = in_eight_bits(storage, stored, columns)
    found = columns_to_float32(EIGHT_BITS_FORM, made, range(len(columns)))
    assert np.array_equal(bits(found), bits(columns_to_float32(storage, stored, columns)))


@pytest.mark.parametrize("columns", [range(16, 272), range(16)])
def test_columns_that_are_no_whole_groups_lose_nothing_in_float32(columns: range) -> None:
    assert held_storage("IQ3_S", "stored", columns, 512) == "F32"


@pytest.mark.parametrize("storage", sorted(EIGHT_BITS))
@pytest.mark.parametrize("instruction_set", SETS)
def test_the_kernels_have_these_numbers(storage: str, instruction_set: str) -> None:
    stored = stored_rows(storage, 37, 512, seed=2)
    matrix = packed(EIGHT_BITS_FORM, in_eight_bits(storage, stored, range(512)), 512)
    expected = to_float32(storage, stored.reshape(-1), (37, 512))
    assert np.array_equal(unpacked(matrix, instruction_set), expected)


@pytest.mark.parametrize("storage", [*OTHERS, *sorted(EIGHT_BITS)])
def test_only_these_are_small_integers_times_one_scale(storage: str) -> None:
    """Of the others the numbers of some 32 neighbours are multiples of no unit that is large enough."""
    with np.errstate(all="ignore"):
        numbers = to_float32(storage, stored_rows(storage, 100, 256, seed=6).reshape(-1), (100, 256))
    exact = numbers[np.isfinite(numbers).all(axis=1)].astype(np.float64) * 2.0**48
    assert np.array_equal(exact, np.trunc(exact)), "multiples of a power of two"
    most = 0
    for group in exact.reshape(-1, 32):
        integers = [abs(int(number)) for number in group]
        most = max(most, max(integers) // (math.gcd(*integers) or 1))
    assert (most <= 127) == (storage in EIGHT_BITS)
