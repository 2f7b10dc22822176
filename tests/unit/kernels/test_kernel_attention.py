"""Attention by the kernels is softmax attention over scattered pages, and each row's bits are its own."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from layerline.frames import PageRun, Span
from layerline.models.latent import LatentSpec
from layerline.models.rope_spec import RopeSpec
from layerline.models.spec import AttentionSpec
from node.kernels.library import library
from node.kernels.structures import Operation, OperationKind, Rows, Step, Work
from node.native.kv_pages import KvPages
from node.native.steps import step_of
from tests.fakes.kernel_matrices import SETS, engine

PAGES, PAGE_TOKENS, LENGTH = 40, 16, 200
SCATTERED = tuple(PageRun(first=int(page), count=1) for page in np.random.default_rng(3).permutation(PAGES)[:13])
PLAIN = AttentionSpec(heads=6, kv_heads=2, head_dim=32, value_dim=32, rope=None)
LATENT = AttentionSpec(
    heads=37,
    kv_heads=1,
    head_dim=48,
    value_dim=32,
    rope=RopeSpec(theta=10000.0, rotated=16),
    latent=LatentSpec(query_rank=0, plain_dim=16, value_dim=16, norm_epsilon=1e-6),
)
SPECS = {
    "plain": PLAIN,
    "one head each": dataclasses.replace(PLAIN, heads=2),
    "many heads": dataclasses.replace(PLAIN, heads=26),
    "odd sizes": dataclasses.replace(PLAIN, head_dim=20, value_dim=12),
    "a window": dataclasses.replace(PLAIN, window_tokens=37),
    "chunks": dataclasses.replace(PLAIN, chunk_tokens=37),
    "a soft cap": dataclasses.replace(PLAIN, soft_cap=2.0),
    "a scale": dataclasses.replace(PLAIN, scale=0.5),
    "a latent": LATENT,
    "a latent with a window": dataclasses.replace(LATENT, heads=4, window_tokens=37),
}
LARGE = {
    "more heads than go together": dataclasses.replace(PLAIN, heads=300, kv_heads=1, head_dim=8, value_dim=8),
    "large heads": dataclasses.replace(PLAIN, heads=2, head_dim=2304, value_dim=2064),
}
WITHIN = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 1e-2, "int8": 3e-2}

# In every form by the first instruction set, and in one by the others, which have the same bits (a test below says so).
IN_EACH_FORM = pytest.mark.parametrize(
    ("kv_dtype", "instruction_set"),
    [
        pytest.param(kv_dtype, each, marks=[pytest.mark.slow] if number and kv_dtype != "float32" else [])
        for kv_dtype in WITHIN
        for number, each in enumerate(SETS)
    ],
)


class Attention:
    """One layer's pages, and steps over them."""

    def __init__(self, spec: AttentionSpec, instruction_set: str, kv_dtype: str = "float32", threads: int = 1) -> None:
        self.spec = spec
        self.pages = KvPages([spec], pages=PAGES, page_tokens=PAGE_TOKENS, kv_dtype=kv_dtype)
        sizes = (spec.heads, spec.kv_heads, spec.head_dim, spec.value_dim)
        self._engine = engine(instruction_set, threads, library().calls.layerline_attention_bytes(*sizes))

    def step(self, spans: Sequence[Span], qkv_TN: NDArray[np.float32], sinks: NDArray[np.float32] | None = None) -> Any:
        """What the rows read [T, heads * value_dim]; with a latent, of latents."""
        self.pages.states[0].form.sinks = None if sinks is None else sinks.ctypes.data
        out = np.zeros((len(qkv_TN), self.spec.heads * self.spec.value_dim), np.float32)
        buffers = [Rows(data=each.ctypes.data, stride=each.shape[1]) for each in (qkv_TN, out)]
        work = Work(buffers=(Rows * 2)(*buffers), layers=self.pages.states, page_tiles=self.pages.page_tiles, digits=3)
        operations = (Operation * 2)(
            Operation(kind=OperationKind.PLACE), Operation(kind=OperationKind.ATTEND, source=0, target=1, index=0)
        )
        self._engine.run(operations, 2, work, step_of(b"", spans, (), PAGE_TOKENS))
        return out

    def in_chunks(self, qkv_TN: NDArray[np.float32], sizes: Sequence[int], **options: Any) -> Any:
        """All rows of one sequence, so many at a time."""
        outs, start = [], 0
        for size in sizes:
            own = np.ascontiguousarray(qkv_TN[start : start + size])
            outs.append(self.step([span(start, len(own))], own, **options))
            start += len(own)
        return np.concatenate(outs)


def span(start: int, count: int, pages: tuple[PageRun, ...] = SCATTERED, skipped: int = 0, sequence: int = 1) -> Span:
    return Span(sequence=sequence, start=start, count=count, pages=pages, skipped_pages=skipped)


def rows_of(spec: AttentionSpec, count: int = LENGTH, seed: int = 0) -> NDArray[np.float32]:
    numbers = spec.query_numbers + spec.key_numbers + spec.value_numbers
    return np.random.default_rng(seed).standard_normal((count, numbers)).astype(np.float32)


def expected(spec: AttentionSpec, qkv_TN: NDArray[np.float32], sinks: NDArray[np.float32] | None = None) -> Any:
    """Softmax attention in float64."""
    ends = np.cumsum([spec.query_numbers, spec.key_numbers])
    q, k, v = np.split(qkv_TN.astype(np.float64), ends, axis=1)
    q = q.reshape(len(q), spec.kv_heads, -1, spec.head_dim)
    k, v = k.reshape(len(k), spec.kv_heads, -1), v.reshape(len(v), spec.kv_heads, -1)
    if spec.latent:
        v = k[..., spec.turned_dim :]
    scores = np.einsum("tkgd,skd->tkgs", q, k) * spec.score_scale
    if spec.soft_cap:
        scores = spec.soft_cap * np.tanh(scores / spec.soft_cap)
    rows, positions = np.arange(len(q))[:, None], np.arange(len(q))[None]
    seen = (positions <= rows) & ((positions > rows - spec.window_tokens) if spec.window_tokens else True)
    seen &= positions >= (rows // spec.chunk_tokens * spec.chunk_tokens if spec.chunk_tokens else 0)
    scores = np.where(seen[:, None, None], scores, -np.inf)
    most = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks.reshape(1, spec.kv_heads, -1, 1) - most)
    return np.einsum("tkgs,ske->tkge", weights / total, v).reshape(len(q), -1)


def distance(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@IN_EACH_FORM
@pytest.mark.parametrize("name", [*SPECS, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_it_is_softmax_attention(name: str, kv_dtype: str, instruction_set: str) -> None:
    spec = {**SPECS, **LARGE}[name]
    qkv = rows_of(spec)
    read = Attention(spec, instruction_set, kv_dtype).step([span(0, LENGTH)], qkv)
    assert distance(read, expected(spec, qkv)) < WITHIN[kv_dtype]


@IN_EACH_FORM
@pytest.mark.parametrize("name", SPECS)
def test_rows_have_the_same_bits_in_chunks_of_any_size(name: str, kv_dtype: str, instruction_set: str) -> None:
    spec = SPECS[name]
    qkv = rows_of(spec)
    whole = Attention(spec, instruction_set, kv_dtype).in_chunks(qkv, [LENGTH])
    for sizes in ([1] * LENGTH, [7] * 29, [63, 1, 2, 70, 64], [128, 72]):
        assert np.array_equal(Attention(spec, instruction_set, kv_dtype).in_chunks(qkv, sizes), whole)


@pytest.mark.parametrize("kv_dtype", WITHIN)
@pytest.mark.parametrize("name", SPECS)
def test_instruction_sets_and_threads_give_the_same_bits(name: str, kv_dtype: str) -> None:
    spec = SPECS[name]
    qkv = rows_of(spec)
    read = [
        Attention(spec, instruction_set, kv_dtype, threads).step([span(0, LENGTH)], qkv)
        for instruction_set in SETS
        for threads in (1, 3)
    ]
    assert all(np.array_equal(read[0], other) for other in read)


@pytest.mark.parametrize("instruction_set", SETS)
def test_sinks_take_their_share(instruction_set: str) -> None:
    qkv, sinks = rows_of(PLAIN), np.linspace(-3, 3, PLAIN.heads, dtype=np.float32)
    read = Attention(PLAIN, instruction_set).step([span(0, LENGTH)], qkv, sinks)
    assert distance(read, expected(PLAIN, qkv, sinks)) < WITHIN["float32"]
    assert np.array_equal(Attention(PLAIN, instruction_set).in_chunks(qkv, [3] * 67, sinks=sinks), read)


@pytest.mark.parametrize("instruction_set", SETS)
def test_sequences_of_a_step_read_their_own_pages_only(instruction_set: str) -> None:
    pages = [tuple(PageRun(first=3 * sequence + page, count=1) for page in (2, 0, 1)) for sequence in range(3)]
    rows = [rows_of(PLAIN, 40, seed) for seed in range(3)]
    together = Attention(PLAIN, instruction_set)
    spans = [span(0, 39, pages[i], sequence=i) for i in range(3)]
    together.step(spans, np.concatenate([each[:39] for each in rows]))
    spans = [span(39, 1, pages[i], sequence=i) for i in range(3)]
    read = together.step(spans, np.concatenate([each[39:] for each in rows]))
    for i in range(3):
        assert distance(read[i], expected(PLAIN, rows[i])[39]) < WITHIN["float32"]


@pytest.mark.parametrize("instruction_set", SETS)
def test_pages_that_no_window_reaches_back_to_may_be_left_out(instruction_set: str) -> None:
    spec = SPECS["a window"]
    qkv, attention = rows_of(spec), Attention(spec, instruction_set)
    whole = attention.in_chunks(qkv, [LENGTH])
    skipped = (LENGTH - 1 - spec.window_tokens + 1) // PAGE_TOKENS
    last = attention.step([span(LENGTH - 1, 1, SCATTERED[skipped:], skipped)], np.ascontiguousarray(qkv[-1:]))
    assert np.array_equal(last[0], whole[-1])


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("head_dim", [32, 20])
def test_numbers_are_rounded_to_float16_as_numpy_does_and_the_largest_is_the_end(
    head_dim: int, instruction_set: str
) -> None:
    """A row that sees only itself reads its own value."""
    spec = dataclasses.replace(PLAIN, head_dim=head_dim, value_dim=head_dim)
    qkv = rows_of(spec, 16) * np.float32(10.0) ** np.linspace(-9, 6, 16, dtype=np.float32)[:, None]
    spans = [span(0, 1, (PageRun(first=row, count=1),), sequence=row) for row in range(16)]
    read = Attention(spec, instruction_set, "float16").step(spans, qkv)
    values = qkv[:, spec.query_numbers + spec.key_numbers :].clip(-65504, 65504).astype(np.float16).astype(np.float32)
    heads = np.repeat(values.reshape(16, spec.kv_heads, -1), spec.heads // spec.kv_heads, axis=1)
    assert np.array_equal(read, heads.reshape(16, -1))


def test_structures_have_the_sizes_of_the_library() -> None:
    assert ctypes.sizeof(Operation) == 56
    assert ctypes.sizeof(Work) == 64
    assert ctypes.sizeof(Step) == 72
