"""Stored rows become, on any device, to the bit the numbers that the `gguf` library makes of them.

Those with scales of groups become what `grouped_rows` makes of them, and are multiplied in their own order of columns.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from layerline.models.grouped import grouped_form
from layerline.models.grouped_rows import rows_of
from layerline.models.held import FLOATS, INTEGERS, rows_bytes
from layerline.models.storage import columns_to_float32, to_float32
from node.model.linear import stored as stored_linear
from node.model.linear.stored import StoredEmbedding, StoredLinear, StoredRows
from node.model.stored import floats
from node.model.stored.forms import FORMS
from node.model.stored.numbers import numbers_of
from tests.fakes.kernel_matrices import GROUPED_STORAGES
from tests.fakes.stored_rows import stored_rows

GROUPED = (
    *GROUPED_STORAGES,
    "INT4_8_F16",
    "INT4_48_F32",
    "INT8_256_F16_ORDERED",
    "INT4_32_F16_ORDERED",
    "F8_E5M2_ROW_F32",
)


def test_every_form_that_is_held_is_known_with_the_size_of_its_blocks() -> None:
    assert {name: (form.numbers, form.nbytes) for name, form in FORMS.items()} == INTEGERS
    assert set(floats.FLOATS) == set(FLOATS)


@pytest.mark.parametrize("storage", [*INTEGERS, *FLOATS])
def test_numbers_are_those_of_gguf(storage: str) -> None:
    stored = stored_rows(storage, 7, 512, seed=3)
    expected = to_float32(storage, stored.reshape(-1), (7, 512))
    found = numbers_of(storage, torch.from_numpy(stored), torch.float32)
    assert np.array_equal(found.numpy().view(np.int32), expected.view(np.int32))
    rounded = numbers_of(storage, torch.from_numpy(stored), torch.bfloat16)
    assert torch.equal(rounded, torch.from_numpy(expected).bfloat16())


@pytest.mark.parametrize("columns", [512, 224, 32])
@pytest.mark.parametrize("storage", GROUPED)
def test_numbers_of_groups_are_those_of_their_rows(storage: str, columns: int) -> None:
    """Also where the last group is not whole, and where rows begin at odd bytes."""
    stored = stored_rows(storage, 7, columns, seed=3)
    assert stored.nbytes == rows_bytes(storage, 7, columns)
    expected = columns_to_float32(storage, stored, range(columns))
    held = torch.from_numpy(stored)
    for rows in (slice(None), slice(3, 4), slice(1, None, 2)):
        found = numbers_of(storage, held[rows], torch.float32)
        assert np.array_equal(found.numpy().view(np.int32), expected[rows].view(np.int32))
        rounded = numbers_of(storage, held[rows], torch.bfloat16)
        assert torch.equal(rounded, torch.from_numpy(expected[rows]).bfloat16())


@pytest.mark.parametrize("codes", ["F8_E4M3", "F8_E5M2"])
def test_every_code_of_fp8_is_what_torch_has_it_for(codes: str) -> None:
    form = grouped_form(f"{codes}_ROW_F32")
    assert form is not None
    every = np.arange(256, dtype=np.uint8)[None]
    stored = rows_of(form, every, np.ones((1, 1), np.float32), None)
    dtype = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}[codes]
    expected = torch.from_numpy(every).view(dtype).float()
    found = numbers_of(form.storage, torch.from_numpy(stored), torch.float32)
    real = ~expected.isnan()
    assert torch.equal(found[real].view(torch.int32), expected[real].view(torch.int32))
    assert found[~real].isnan().all()


@pytest.mark.parametrize("storage", INTEGERS)
def test_any_bits_at_all_are_read_as_gguf_reads_them(storage: str) -> None:
    """Scales that are no numbers, or hardly any, and every exponent."""
    numbers_of_block, nbytes = INTEGERS[storage]
    stored = np.random.default_rng(1).integers(0, 256, (1000, nbytes), dtype=np.uint8)
    stored[:256, 0] = np.arange(256)
    with np.errstate(all="ignore"):
        expected = to_float32(storage, stored.reshape(-1), (1000, numbers_of_block))
    found = numbers_of(storage, torch.from_numpy(stored), torch.float32)
    assert np.array_equal(found.numpy(), expected, equal_nan=True)


def test_rows_that_do_not_begin_at_the_beginning_of_their_memory() -> None:
    stored = torch.from_numpy(stored_rows("Q6_K", 5, 256))
    whole = numbers_of("Q6_K", stored, torch.float32)
    assert torch.equal(numbers_of("Q6_K", stored[2:4], torch.float32), whole[2:4])
    assert torch.equal(numbers_of("Q6_K", stored[::2], torch.float32), whole[::2])


class Refusing:
    """Kernels that have the forms in blocks alone."""

    def multiply_few(
        self, storage: str, x_TI: torch.Tensor, stored_RB: torch.Tensor, bias_R: object, out_TR: torch.Tensor
    ) -> None:
        assert bias_R is None
        out_TR.copy_(x_TI @ self.unpacked(storage, stored_RB, x_TI.dtype).t())

    def unpacked(self, storage: str, stored_RB: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        assert storage in FORMS
        return numbers_of(storage, stored_RB, dtype)


@pytest.mark.parametrize("rows", [1, 40])
def test_kernels_of_a_device_are_not_asked_for_scales_of_groups(rows: int) -> None:
    parts = [
        StoredRows(storage=storage, stored_RB=torch.from_numpy(stored_rows(storage, 6, 256)), columns=256)
        for storage in ("INT4_64_F16", "Q4_K", "F8_E4M3_128_F32")
    ]
    x_TI = torch.randn((rows, 256), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(StoredLinear(parts, None, Refusing())(x_TI), StoredLinear(parts)(x_TI))


def test_rows_whose_columns_lie_in_orders_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiplied tile by tile, and looked up."""
    monkeypatch.setattr(stored_linear, "TILE_NUMBERS", 256 * 7)
    parts, matrices = [], []
    for seed, storage in enumerate(("INT4_64_F16_ORDERED", "INT8_64_BF16", "INT8_128_F16_ORDERED")):
        stored = stored_rows(storage, 20, 256, seed)
        numbers = torch.from_numpy(columns_to_float32(storage, stored, range(256)))
        order_I = torch.randperm(256, generator=torch.Generator().manual_seed(seed)) if "ORDERED" in storage else None
        parts.append(StoredRows(storage=storage, stored_RB=torch.from_numpy(stored), columns=256, order_I=order_I))
        matrices.append(numbers if order_I is None else numbers[:, order_I.argsort()])
    x_TI, bias_O = torch.randn((5, 256), generator=torch.Generator().manual_seed(9)), torch.arange(60.0)
    expected = x_TI @ torch.cat(matrices).t() + bias_O
    torch.testing.assert_close(StoredLinear(parts, bias_O)(x_TI), expected, rtol=1e-5, atol=1e-4)
    ids_T = torch.tensor([3, 19, 3])
    for part, matrix in zip(parts, matrices, strict=True):
        assert torch.equal(StoredEmbedding(part, torch.float32)(ids_T), matrix[ids_T])
