"""Stored rows become, on any device, to the bit the numbers that the `gguf` library makes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from layerline.models.held import FLOATS, INTEGERS
from layerline.models.storage import to_float32
from node.model.stored import numbers
from node.model.stored.forms import FORMS
from node.model.stored.numbers import numbers_of
from tests.fakes.stored_rows import stored_rows


def test_every_form_that_is_held_is_known_with_the_size_of_its_blocks() -> None:
    assert {name: (form.numbers, form.nbytes) for name, form in FORMS.items()} == INTEGERS
    assert set(numbers.FLOATS) == set(FLOATS)


@pytest.mark.parametrize("storage", [*INTEGERS, *FLOATS])
def test_numbers_are_those_of_gguf(storage: str) -> None:
    stored = stored_rows(storage, 7, 512, seed=3)
    expected = to_float32(storage, stored.reshape(-1), (7, 512))
    found = numbers_of(storage, torch.from_numpy(stored), torch.float32)
    assert np.array_equal(found.numpy().view(np.int32), expected.view(np.int32))
    rounded = numbers_of(storage, torch.from_numpy(stored), torch.bfloat16)
    assert torch.equal(rounded, torch.from_numpy(expected).bfloat16())


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
