"""Kernels by Triton give what plain operations give, in every form; a CPU interprets what a GPU runs."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from layerline.models.held import INTEGERS
from node.model import triton_trial
from node.model.linear.stored import StoredLinear, StoredRows
from node.model.stored.numbers import numbers_of
from node.model.stored.products import MOST_ROWS, BlockKernels, block_kernels_on
from tests.fakes.stored_rows import stored_rows

WITHIN = {torch.float32: 1e-6, torch.bfloat16: 5e-3}  # of what is added up; the interpreter cuts bfloat16 off
COLUMNS = {32: (32, 544, 768), 256: (256, 1024, 1280)}  # by the numbers of a block
COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from node.model.stored import block_kernels
dtype, capability = sys.argv[1], int(sys.argv[2])
pointers = {"x": f"*{dtype}", "stored": "*u8", "bias": f"*{dtype}", "listed": "*fp32", "out": f"*{dtype}"}
sizes = dict.fromkeys(block_kernels.SIZES, "i32")
for storage in block_kernels.FORMS:
    for kernel in (block_kernels._multiply, block_kernels._unpack):
        constants = {"ROWS": 16, "HAS_BIAS": True, "WIDENS": False, **block_kernels.constants(storage)}
        known = {**pointers, **sizes, **dict.fromkeys(constants, "constexpr")}
        types = {name: known[name] for name in kernel.arg_names}
        numbered = {(place,): constants[name] for place, name in enumerate(types) if name in constants}
        source = ASTSource(fn=kernel, signature=types, constexprs=numbered)
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"enable_fp_fusion": False})
        assert made.asm["cubin"]
    print(storage)
"""


@pytest.fixture
def interpreted() -> BlockKernels:
    pytest.importorskip("triton", reason="Triton is not installed: pip install --no-deps triton")
    kernels: BlockKernels = importlib.import_module("node.model.stored.block_kernels")
    return kernels


def exact(x_TI: torch.Tensor, weight_RI: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    product = x_TI.double() @ weight_RI.double().t()
    return product if bias is None else product + bias.double()


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
@pytest.mark.parametrize("storage", INTEGERS)
def test_the_product_is_that_of_the_unpacked_matrix(
    interpreted: BlockKernels, storage: str, dtype: torch.dtype
) -> None:
    """Of odd shapes: rows and columns that fill neither a program nor its tile, with a bias and without."""
    for columns, rows, matrix_rows in zip(COLUMNS[INTEGERS[storage][0]], (1, 5, MOST_ROWS), (1, 37, 16), strict=True):
        luck = torch.Generator().manual_seed(columns)
        stored = torch.from_numpy(stored_rows(storage, matrix_rows, columns, seed=columns))
        x_TI = torch.randn(rows, columns, generator=luck).to(dtype)
        for bias in (None, torch.randn(matrix_rows, generator=luck).to(dtype)):
            beside = torch.full((rows, matrix_rows + 2), 7.0, dtype=dtype)
            interpreted.multiply_few(storage, x_TI, stored, bias, beside.narrow(1, 1, matrix_rows))
            weight_RI = numbers_of(storage, stored, dtype)
            expected = exact(x_TI, weight_RI, bias)
            added_up = exact(x_TI.abs(), weight_RI.abs(), None if bias is None else bias.abs())
            assert ((beside[:, 1:-1].double() - expected).abs() <= WITHIN[dtype] * added_up).all()
            assert torch.equal(beside[:, [0, -1]], torch.full_like(beside[:, :2], 7.0))


@pytest.mark.parametrize("storage", INTEGERS)
def test_unpacked_numbers_are_to_the_bit_those_of_plain_operations(interpreted: BlockKernels, storage: str) -> None:
    for columns, rows in zip(COLUMNS[INTEGERS[storage][0]], (1, 37, 16), strict=True):
        stored = torch.from_numpy(stored_rows(storage, rows, columns, seed=rows))
        assert torch.equal(
            interpreted.unpacked(storage, stored, torch.float32), numbers_of(storage, stored, torch.float32)
        )


class Noted:
    """Kernels, and which of them were asked for what."""

    def __init__(self, kernels: BlockKernels) -> None:
        self._kernels = kernels
        self.used: list[tuple[str, str]] = []

    def multiply_few(self, storage: str, *given: Any) -> None:
        self.used.append(("few", storage))
        self._kernels.multiply_few(storage, *given)

    def unpacked(self, storage: str, *given: Any) -> torch.Tensor:
        self.used.append(("many", storage))
        return self._kernels.unpacked(storage, *given)


def test_a_matrix_of_unlike_storages_is_multiplied_by_them_as_far_as_it_is_in_blocks(interpreted: BlockKernels) -> None:
    parts = [
        StoredRows(storage=storage, stored_RB=torch.from_numpy(stored_rows(storage, rows, 512)), columns=512)
        for storage, rows in (("Q4_K", 20), ("F32", 3), ("Q6_K", 9))
    ]
    bias_O, x_TI, kernels = torch.randn(32), torch.randn(MOST_ROWS + 1, 512), Noted(interpreted)
    with_them, without = StoredLinear(parts, bias_O, kernels), StoredLinear(parts, bias_O)
    torch.testing.assert_close(with_them(x_TI[:-1]), without(x_TI[:-1]))
    assert kernels.used == [("few", "Q4_K"), ("few", "Q6_K")]
    assert torch.equal(with_them(x_TI), without(x_TI))
    assert kernels.used[2:] == [("many", "Q4_K"), ("many", "Q6_K")]


def failing(*sizes: int, **where: object) -> torch.Tensor:
    raise OSError("cc: exec format error")


def test_a_cpu_has_none() -> None:
    assert block_kernels_on(torch.device("cpu")) is None


def test_a_gpu_for_which_nothing_can_be_made_is_done_without(
    interpreted: BlockKernels, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where no compiler works."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(triton_trial, "triton_here", lambda _capability: "triton")
    monkeypatch.setattr(torch, "zeros", failing)  # where the trial begins
    assert block_kernels_on(torch.device("cuda:0")) is None
    assert "Triton makes no kernels for cuda:0" in caplog.text
    assert "exec format error" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "capability"), [("bf16", 80), ("bf16", 90), ("fp32", 90)])
def test_it_compiles_for_gpus(dtype: str, capability: int, tmp_path: Path) -> None:
    """In every form; Triton brings its own assembler, so that no GPU is needed for it."""
    pytest.importorskip("triton", reason="Triton is not installed: pip install --no-deps triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", COMPILE, dtype, str(capability)]
    made = subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True, text=True)
    assert set(made.stdout.split()) == set(INTEGERS)
