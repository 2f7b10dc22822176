"""Pools of keys and values: views where they can be, and int8 near what was written, whatever is written beside."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from layerline.models.sizes import kv_bytes_per_token
from layerline.plan import KV_DTYPES
from node.model.kv_pool import COPIED_SLOTS, KVPool, LayerPool
from tests.fakes.specs import decoder_spec

MODEL = decoder_spec(layers=3)
DTYPES = [torch.float32, torch.bfloat16]


def pool_of(kv_dtype: str, dtype: torch.dtype = torch.float32) -> KVPool:
    layers = [MODEL.layer(index).attention for index in range(3)]
    return KVPool.allocate(layers, 44, kv_dtype, dtype=dtype, device=torch.device("cpu"))


def random(rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(rows, 2, 2, 16, generator=torch.Generator().manual_seed(0)).to(dtype)


def read(pool: LayerPool, first: int, count: int) -> Tensor:
    """[count, 2, K, D], as they were written."""
    return torch.cat(pool.run(first, count)).permute(2, 0, 1, 3)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_a_pool_takes_what_was_planned(kv_dtype: str) -> None:
    assert pool_of(kv_dtype).nbytes == 44 * kv_bytes_per_token(MODEL, 3, kv_dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_run_is_a_view_if_nothing_is_converted(dtype: torch.dtype) -> None:
    pool = pool_of(str(dtype).removeprefix("torch."), dtype)
    keys_1KSD, values_1KSD = pool.layers[0].run(8, 12)
    pool.layers[0].write(torch.tensor([8]), torch.ones(1, 2, 2, 16, dtype=dtype))
    assert keys_1KSD.shape == (1, 2, 12, 16)
    assert keys_1KSD[:, :, 0].eq(1).all()
    assert values_1KSD[:, :, 0].eq(1).all()
    assert pool.most_slots > COPIED_SLOTS


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_what_was_written_is_read_in_the_dtype_of_the_computation(kv_dtype: str, dtype: torch.dtype) -> None:
    """In int8 no number is off by more than half a step, and the roundings of scale and product to bfloat16."""
    layer = pool_of(kv_dtype, dtype).layers[1]
    rows = random(50, dtype)[:30]
    layer.write(torch.arange(3, 33), rows)
    seen = read(layer, 3, 30)
    assert seen.dtype == dtype
    most = rows.float().abs().amax(dim=-1, keepdim=True)
    bound = most * {"float32": 0, "bfloat16": 2**-8, "int8": 0.5 / 127 + 2**-8}[kv_dtype]
    assert ((seen.float() - rows.float()).abs() <= bound).all()


def test_int8_does_not_depend_on_what_is_written_beside() -> None:
    together, alone = pool_of("int8").layers[0], pool_of("int8").layers[0]
    rows = random(6) * torch.tensor([1.0, 1000.0, 1e-3, 0.0, 1e-38, 5.0])[:, None, None, None]
    slots = torch.tensor([9, 2, 7, 8, 30, 31])
    together.write(slots, rows)
    for slot, row in zip(slots, rows, strict=True):
        alone.write(slot[None], row[None])
        assert torch.equal(read(alone, int(slot), 1), read(together, int(slot), 1))
    assert read(together, 8, 1).eq(0).all()
    assert read(together, 0, 44)[slots].isfinite().all()


def test_runs_that_are_copied_are_to_be_read_piece_by_piece() -> None:
    assert pool_of("int8").most_slots == pool_of("bfloat16").most_slots == COPIED_SLOTS
