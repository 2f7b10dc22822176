"""One row of each sequence at once reads what each would by itself; a CPU interprets what a GPU runs."""

from __future__ import annotations

import importlib
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from layerline.frames import PageRun, Span
from layerline.models.spec import AttentionSpec
from node.model.attention.backend import LayerAttention, StepAttention
from node.model.attention.row_choice import row_attention_on
from node.model.attention.row_pages import RowAttention
from node.model.attention.run_attention import RowStep, RunAttention, RunStep

CPU = torch.device("cpu")
PLAIN = AttentionSpec(heads=6, kv_heads=2, head_dim=16, value_dim=16, rope=None)
LAYERS = {
    "plain": PLAIN,
    "one head of each": replace(PLAIN, heads=2, head_dim=80, value_dim=80),
    "values smaller than keys": replace(PLAIN, value_dim=10),
    "a window": replace(PLAIN, window_tokens=70),
    "chunks": replace(PLAIN, chunk_tokens=50),
    "all of it": replace(PLAIN, scale=0.9, soft_cap=2.0, head_dim=24, value_dim=40, window_tokens=5),
}
PAGE_TOKENS = 4
PAGES = 60
SPANS = (
    Span(sequence=1, start=150, count=1, pages=(PageRun(first=20, count=38),), draws=0),
    Span(sequence=2, start=13, count=1, pages=tuple(PageRun(first=page, count=1) for page in (5, 17, 8, 1)), draws=0),
    Span(sequence=3, start=0, count=1, pages=(PageRun(first=9, count=2),), draws=0),
    Span(
        sequence=4,
        start=129,
        count=1,
        pages=(PageRun(first=10, count=6), PageRun(first=0, count=1), PageRun(first=18, count=1)),
        skipped_pages=25,
        draws=0,
    ),
)
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from node.model.attention import row_kernel
for dtype, capability in (("bf16", 80), ("bf16", 90), ("fp32", 90)):
    tensors = dict.fromkeys(("q", "k", "v", "out"), f"*{dtype}")
    tables = dict.fromkeys(("pages", "first_positions", "end_positions"), "*i32")
    numbers = {"pages_stride": "i32", "slots": "i32", "scale": "fp32", "soft_cap": "fp32"}
    constants = {"PAGE_TOKENS": 16, "WINDOW": 512, "CHUNK": 512, "HAS_CAP": True, "HAS_SINKS": True, "WIDENS": False}
    constants |= {"GROUP": 7, "GROUP_SIDE": 16, "KEY": 128, "KEY_SIDE": 128, "VALUE": 128, "VALUE_SIDE": 128}
    constants |= {"POSITIONS": 64}
    types = {**tensors, "sinks": "*fp32", **tables, **numbers, **dict.fromkeys(constants, "constexpr")}
    ordered = {name: types[name] for name in row_kernel._attend.arg_names}
    numbered = {(list(ordered).index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=row_kernel._attend, signature=ordered, constexprs=numbered)
    assert triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
"""


@pytest.fixture
def interpreted() -> RowAttention:
    pytest.importorskip("triton", reason="Triton is not installed: pip install --no-deps triton")
    rows: RowAttention = importlib.import_module("node.model.attention.row_kernel").attend_rows
    return rows


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attention(
    spec: AttentionSpec, kv_dtype: str, sinks_KG: Tensor | None, rows: RowAttention | None, dtype: torch.dtype
) -> RunAttention:
    """A layer with random keys and values where SPANS have read before, and no numbers anywhere else."""
    layers = [LayerAttention(spec=spec, sinks_KG=sinks_KG)]
    made = RunAttention.allocate(
        layers, pages=PAGES, page_tokens=PAGE_TOKENS, kv_dtype=kv_dtype, dtype=dtype, device=CPU, rows=rows
    )
    everywhere = Span(sequence=9, start=0, count=PAGES * PAGE_TOKENS, pages=(PageRun(first=0, count=PAGES),), draws=0)
    k_SKD, v_SKE = (
        random(PAGES * PAGE_TOKENS, 2, size, seed=seed) for seed, size in enumerate((spec.head_dim, spec.value_dim))
    )
    seen = torch.zeros(PAGES * PAGE_TOKENS, dtype=torch.bool)
    for span in SPANS:
        slots = [PAGE_TOKENS * page for run in span.pages for page in range(run.first, run.first + run.count)]
        places = [slot + place for slot in slots for place in range(PAGE_TOKENS)]
        seen[places[: span.start - span.skipped_pages * PAGE_TOKENS]] = True
    if kv_dtype != "int8":
        k_SKD[~seen], v_SKE[~seen] = math.nan, math.nan
    q_SKGD = torch.zeros(PAGES * PAGE_TOKENS, 2, spec.heads // 2, spec.head_dim, dtype=dtype)
    made.plan([everywhere]).attend(0, q_SKGD, (k_SKD.to(dtype), v_SKE.to(dtype)))
    return made


def read(made: RunAttention, spec: AttentionSpec, dtype: torch.dtype) -> tuple[StepAttention, Tensor]:
    step = made.plan(SPANS)
    q_TKGD = random(len(SPANS), 2, spec.heads // 2, spec.head_dim, seed=5).to(dtype)
    k_TKD, v_TKE = (random(len(SPANS), 2, size, seed=size).to(dtype) for size in (spec.head_dim, spec.value_dim))
    return step, step.attend(0, q_TKGD, (k_TKD, v_TKE))


@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("kv_dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("spec", LAYERS.values(), ids=LAYERS)
def test_rows_read_what_they_read_by_themselves(
    interpreted: RowAttention, spec: AttentionSpec, kv_dtype: str, sinks: bool
) -> None:
    sinks_KG = random(2, spec.heads // 2, seed=7) if sinks else None
    by_runs, by_rows = (attention(spec, kv_dtype, sinks_KG, rows, torch.float32) for rows in (None, interpreted))
    (step, expected), (row_step, found) = (read(each, spec, torch.float32) for each in (by_runs, by_rows))
    assert isinstance(step, RunStep)
    assert isinstance(row_step, RowStep)
    assert torch.equal(step.positions_T, row_step.positions_T)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_in_bfloat16_they_are_as_near_as_it_lets_them_be(interpreted: RowAttention) -> None:
    by_runs, by_rows = (attention(PLAIN, "bfloat16", None, rows, torch.bfloat16) for rows in (None, interpreted))
    (_, expected), (_, found) = (read(each, PLAIN, torch.bfloat16) for each in (by_runs, by_rows))
    torch.testing.assert_close(found, expected, atol=3e-2, rtol=3e-2)


def test_pages_in_int8_and_steps_with_several_rows_of_a_sequence_are_read_by_runs(interpreted: RowAttention) -> None:
    assert isinstance(attention(PLAIN, "int8", None, interpreted, torch.float32).plan(SPANS), RunStep)
    several = replace(SPANS[2], count=2)
    assert isinstance(attention(PLAIN, "float32", None, interpreted, torch.float32).plan([several]), RunStep)


def test_a_cpu_has_none() -> None:
    assert row_attention_on(CPU) is None


@pytest.mark.slow
def test_it_compiles_for_gpus(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed: pip install --no-deps triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    subprocess.run([sys.executable, "-c", COMPILE], env=environment, check=True, timeout=300, capture_output=True)
