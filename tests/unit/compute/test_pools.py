"""Pools of keys and values: views where they can be, and int8 near what was written, whatever is written beside."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from layerline.models.sizes import ModelSizes
from layerline.models.spec import AttentionSpec
from layerline.plan import KV_DTYPES
from node.model.attention.backend import LayerAttention
from node.model.attention.pools import ANY_SLOTS, COPIED_SLOTS, LayerPool, layer_pool, most_slots
from node.model.attention.run_attention import RunAttention
from tests.fakes.cards import PLAIN, model_card
from tests.fakes.specs import decoder_spec, of_layers

MODEL = decoder_spec(layers=3)
ATTENTION = MODEL.layer(0).attention
WIDE_VALUES = replace(ATTENTION, value_dim=24)
CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16]


def pool_of(kv_dtype: str, dtype: torch.dtype = torch.float32, spec: AttentionSpec = ATTENTION) -> LayerPool:
    return layer_pool(spec, 44, kv_dtype, dtype=dtype, device=CPU)


def random(rows: int, numbers: int = 16, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(rows, 2, numbers, generator=torch.Generator().manual_seed(0)).to(dtype)


def read(pool: LayerPool, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Keys and values [count, K, numbers], as they were written."""
    keys, values = pool.run(first, count)
    return keys[0].transpose(0, 1), values[0].transpose(0, 1)


@pytest.mark.parametrize("spec", [ATTENTION, WIDE_VALUES])
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_pages_take_what_was_planned(kv_dtype: str, spec: AttentionSpec) -> None:
    layers = [LayerAttention(spec=spec)] * 3
    made = RunAttention.allocate(layers, pages=11, page_tokens=4, kv_dtype=kv_dtype, dtype=torch.float32, device=CPU)
    model = of_layers(MODEL, [replace(MODEL.layer(0), mixer=spec)] * 3)
    sizes = ModelSizes.of(model_card(model), PLAIN, kv_dtype)
    assert made.nbytes == 44 * sizes.kv_bytes_per_token(range(3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_is_a_view_if_nothing_is_converted(dtype: torch.dtype) -> None:
    kv_dtype = str(dtype).removeprefix("torch.")
    pool = pool_of(kv_dtype, dtype)
    keys_1KSD, values_1KSE = pool.run(8, 12)
    pool.write(torch.tensor([8]), torch.ones(1, 2, 16, dtype=dtype), torch.ones(1, 2, 16, dtype=dtype))
    assert keys_1KSD.shape == (1, 2, 12, 16)
    assert keys_1KSD[:, :, 0].eq(1).all()
    assert values_1KSE[:, :, 0].eq(1).all()
    assert most_slots(kv_dtype, dtype) == ANY_SLOTS


@pytest.mark.parametrize("spec", [ATTENTION, WIDE_VALUES])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_what_was_written_is_read_in_the_dtype_of_the_computation(
    kv_dtype: str, dtype: torch.dtype, spec: AttentionSpec
) -> None:
    """In int8 no number is off by more than half a step, and the roundings of scale and product to bfloat16."""
    pool = pool_of(kv_dtype, dtype, spec)
    written = (random(30, 16, dtype), random(30, spec.value_dim, dtype))
    pool.write(torch.arange(3, 33), *written)
    for rows, seen in zip(written, read(pool, 3, 30), strict=True):
        assert seen.dtype == dtype
        most = rows.float().abs().amax(dim=-1, keepdim=True)
        bound = most * {"float32": 0, "float16": 2**-11, "bfloat16": 2**-8, "int8": 0.5 / 127 + 2**-8}[kv_dtype]
        assert ((seen.float() - rows.float()).abs() <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_too_large_for_float16_becomes_the_largest(dtype: torch.dtype) -> None:
    pool, rows = pool_of("float16", dtype), (random(4) * 1e6).to(dtype)
    pool.write(torch.arange(4), rows, rows)
    for seen in read(pool, 0, 4):
        assert torch.equal(seen, rows.float().clamp(-65504, 65504).half().to(dtype))


def test_int8_does_not_depend_on_what_is_written_beside() -> None:
    together, alone = pool_of("int8"), pool_of("int8")
    rows = random(6) * torch.tensor([1.0, 1000.0, 1e-3, 0.0, 1e-38, 5.0])[:, None, None]
    slots = torch.tensor([9, 2, 7, 8, 30, 31])
    together.write(slots, rows, -rows)
    for slot, row in zip(slots, rows, strict=True):
        alone.write(slot[None], row[None], -row[None])
        for seen, expected in zip(read(alone, int(slot), 1), read(together, int(slot), 1), strict=True):
            assert torch.equal(seen, expected)
    assert all(seen.eq(0).all() for seen in read(together, 8, 1))
    assert all(seen[slots].isfinite().all() for seen in read(together, 0, 44))


def test_runs_that_are_copied_are_to_be_read_piece_by_piece() -> None:
    assert most_slots("int8", torch.float32) == most_slots("bfloat16", torch.float32) == COPIED_SLOTS
