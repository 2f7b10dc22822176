"""Stored matrices multiply as what they are: to the bit unpacked, exact in the digits, alike everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from layerline.models.held import INTEGERS, matrix_bytes
from node.kernels.engine import aligned_bytes, pack
from node.kernels.library import library
from node.kernels.structures import FORMATS
from node.native.matrices import NativeMatrix, Panels
from node.native.one_product import OneProduct
from tests.fakes.kernel_matrices import GROUPED_STORAGES, SETS, KernelMatrix, engine

WITHIN = {1: 2e-2, 2: 5e-5, 3: 4e-7}  # of the length of a product, by digits
ROWS = (1, 2, 3, 5, 7, 13, 29)
INPUTS = 512
STORAGES = (*FORMATS, *GROUPED_STORAGES)


def rows_of(count: int, inputs: int = INPUTS, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, inputs)).astype(np.float32)


def distance(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def test_sizes_of_blocks_are_those_of_the_library() -> None:
    for storage, size in INTEGERS.items():
        assert GGML_QUANT_SIZES[GGMLQuantizationType[storage]] == size
    assert set(FORMATS) == {*INTEGERS, "F32", "F16", "BF16"}


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("storage", STORAGES)
def test_a_panel_unpacks_to_the_bit_as_gguf_does(storage: str, instruction_set: str) -> None:
    matrix = KernelMatrix(storage, outputs=35, inputs=INPUTS)
    assert np.array_equal(matrix.unpacked(instruction_set), matrix.numbers)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("storage", STORAGES)
def test_products_are_as_exact_as_their_digits(storage: str, instruction_set: str) -> None:
    matrix, rows = KernelMatrix(storage, outputs=35, inputs=INPUTS), rows_of(9)
    exact = rows.astype(np.float64) @ matrix.numbers.astype(np.float64).T
    for digits, within in WITHIN.items():
        assert distance(matrix.product(rows, digits, instruction_set), exact) < within


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("digits", WITHIN)
@pytest.mark.parametrize("storage", STORAGES)
def test_a_row_has_the_same_bits_among_any_others(storage: str, digits: int, instruction_set: str) -> None:
    matrix, rows = KernelMatrix(storage, outputs=83, inputs=INPUTS), rows_of(max(ROWS))
    alone = np.concatenate([matrix.product(rows[i : i + 1], digits, instruction_set) for i in range(len(rows))])
    for count in ROWS:
        assert np.array_equal(matrix.product(rows[:count], digits, instruction_set), alone[:count])


@pytest.mark.parametrize("storage", STORAGES)
def test_instruction_sets_give_the_same_bits(storage: str) -> None:
    matrix, rows = KernelMatrix(storage, outputs=48, inputs=INPUTS), rows_of(4)
    for digits in WITHIN:
        products = [matrix.product(rows, digits, instruction_set) for instruction_set in SETS]
        assert all(np.array_equal(products[0], product) for product in products)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("storage", ["F32", "BF16", "Q8_0", "Q6_K", "INT4_96_F16", "F8_E4M3_96_F16"])
def test_more_rows_than_are_multiplied_at_a_time(storage: str, instruction_set: str) -> None:
    matrix, rows = KernelMatrix(storage, outputs=17, inputs=256), rows_of(1000, 256)
    product = matrix.product(rows, 2, instruction_set)
    exact = rows.astype(np.float64) @ matrix.numbers.astype(np.float64).T
    assert distance(product, exact) < WITHIN[2]
    assert np.array_equal(product[777:778], matrix.product(rows[777:778], 2, instruction_set))


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("inputs", [1, 7, 8, 30, 33])
def test_floating_point_matrices_have_any_number_of_columns(inputs: int, instruction_set: str) -> None:
    matrix, rows = KernelMatrix("F32", outputs=5, inputs=inputs), rows_of(3, inputs)
    assert np.allclose(matrix.product(rows, 3, instruction_set), rows @ matrix.numbers.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("storage", ["F16", "Q4_0", "Q4_K", "Q6_K", "INT8_64_BF16", "F8_E4M3_128_F32"])
def test_what_is_no_number_spoils_its_row_and_no_other(storage: str, spoilt: float, instruction_set: str) -> None:
    matrix, rows = KernelMatrix(storage, outputs=20, inputs=256), rows_of(5, 256)
    well = matrix.product(rows, 2, instruction_set)
    rows[2, 70] = spoilt
    product = matrix.product(rows, 2, instruction_set)
    assert not np.isfinite(product[2]).any()
    others = [0, 1, 3, 4]
    assert np.array_equal(product[others], well[others])


@pytest.mark.parametrize("instruction_set", SETS)
def test_rows_of_zeros_and_of_hardly_more(instruction_set: str) -> None:
    matrix = KernelMatrix("Q5_1", outputs=16, inputs=64)
    rows = np.array([np.zeros(64), np.full(64, 1e-38), np.full(64, 1e-3), np.full(64, 1e20)], np.float32)
    product = matrix.product(rows, 3, instruction_set)
    assert np.array_equal(product[:2], np.zeros((2, 16)))
    exact = rows.astype(np.float64) @ matrix.numbers.astype(np.float64).T
    assert np.allclose(product[2:], exact[2:], rtol=1e-4)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("storage", GROUPED_STORAGES)
def test_the_last_group_has_fewer_columns(storage: str, instruction_set: str) -> None:
    inputs = 224 if storage.startswith("INT") else 213
    matrix, rows = KernelMatrix(storage, outputs=21, inputs=inputs), rows_of(5, inputs)
    assert np.array_equal(matrix.unpacked(instruction_set), matrix.numbers)
    exact = rows.astype(np.float64) @ matrix.numbers.astype(np.float64).T
    for digits, within in WITHIN.items():
        product = matrix.product(rows, digits, instruction_set)
        assert distance(product, exact) < within
        assert np.array_equal(matrix.product(rows[3:4], digits, instruction_set), product[3:4])


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("storage", ["INT4_128_F16", "INT8_64_BF16"])
def test_columns_in_another_order_meet_their_inputs(storage: str, instruction_set: str) -> None:
    order = np.random.default_rng(5).permutation(INPUTS).astype(np.int32)
    matrix, rows = KernelMatrix(storage, outputs=35, inputs=INPUTS, order=order), rows_of(9)
    plain = KernelMatrix(storage, outputs=35, inputs=INPUTS)
    assert np.array_equal(matrix.unpacked(instruction_set), matrix.numbers)
    for digits in WITHIN:
        product = matrix.product(rows, digits, instruction_set)
        assert np.array_equal(product, plain.product(rows[:, order], digits, instruction_set))


def test_stacked_matrices_may_have_orders_of_their_own() -> None:
    random, rows = np.random.default_rng(6), rows_of(3, 256)
    orders = [random.permutation(256).astype(np.int32) for _ in range(2)]
    own = [None, orders[0], orders[0].copy(), orders[1], None]
    parts = [
        KernelMatrix(storage, outputs=20, inputs=256, seed=seed, order=order)
        for seed, (order, storage) in enumerate(zip(own, ["F32", *["INT4_64_F16"] * 3, "Q4_0"], strict=True))
    ]
    stacked = NativeMatrix([part.matrix.parts[0] for part in parts])
    product = OneProduct(rows, stacked, engine(SETS[0]), 3).multiply()
    assert np.array_equal(product, np.concatenate([part.product(rows, 3, SETS[0]) for part in parts], axis=1))


@pytest.mark.parametrize("instruction_set", SETS)
def test_fp8_multiplies_as_the_same_numbers_in_float32(instruction_set: str) -> None:
    matrix, rows = KernelMatrix("F8_E4M3_128_F32", outputs=35, inputs=INPUTS), rows_of(9)
    memory = aligned_bytes(matrix_bytes("F32", 35, INPUTS))
    pack(library(), "F32", matrix.numbers.view(np.uint8), INPUTS, 0, memory)
    floats = NativeMatrix([Panels(storage="F32", rows=35, columns=INPUTS, memory=memory)])
    for count in (1, 9):
        wanted = OneProduct(rows[:count], floats, engine(instruction_set), 3).multiply()
        assert np.array_equal(matrix.product(rows[:count], 3, instruction_set), wanted)
