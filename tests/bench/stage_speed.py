"""How fast one stage computes, without any network: `python -m tests.bench.stage_speed FILE [--kv-dtype int8] …`.

Prints what docs/performance.md quotes. One thread; each figure is the least of several repetitions, in processor
time of that thread, so that other programs disturb it little (they still share caches and memory).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import torch

from layerline.frames import Frame, PageRun, Sampling, Span, TensorBytes
from layerline.models.index import index_model
from layerline.plan import DTYPES, KV_DTYPES, StageSpec
from node.load_stage import load_stage
from node.stage import Stage

PAGES, PAGE_TOKENS, MAX_ROWS = 1040, 16, 512
CONTEXTS = (128, 1024, 4096)
BATCHES = (1, 4, 8, 16, 32)
CHUNKS = (512, 256, 128, 64)
PROMPT_TOKENS = 2048
CHUNK_STARTS = (0, 2048, 4096, 8192)
SEQUENCE_PAGES = 32  # of the sequences in a batch: contexts of up to 512


class StageTimer:
    """A whole model as one stage, and the least time of its steps in milliseconds."""

    def __init__(self, stage: Stage, vocabulary: int, repeats: int) -> None:
        self._stage = stage
        self._vocabulary = vocabulary
        self._repeats = repeats
        self._steps = itertools.count(1)

    def fill(self) -> None:
        """Writes every slot, so that nothing is read that is no number."""
        for page in range(0, PAGES, MAX_ROWS // PAGE_TOKENS):
            pages = (PageRun(first=page, count=min(PAGES - page, MAX_ROWS // PAGE_TOKENS)),)
            self._once([Span(sequence=1, start=0, count=pages[0].count * PAGE_TOKENS, pages=pages)])

    def step_ms(self, *spans: Span) -> float:
        """The least time of a step of these spans."""
        return 1e3 * min(self._once(spans) for _ in range(self._repeats))

    def prompt_ms(self, chunk_rows: int) -> float:
        """The least time of a prompt in chunks of that many rows, the first token included."""
        starts = range(0, PROMPT_TOKENS, chunk_rows)
        spans = [_span(start, chunk_rows, last=start == starts[-1]) for start in starts]
        return 1e3 * min(sum(self._once([span]) for span in spans) for _ in range(max(1, self._repeats // 5)))

    def _once(self, spans: Sequence[Span]) -> float:
        rows = sum(span.count for span in spans)
        token_ids = np.random.default_rng(0).integers(0, self._vocabulary, rows).astype(np.int32)
        tensor = TensorBytes(dtype="int32", shape=(rows,), data=token_ids.tobytes())
        frame = Frame(epoch=1, step=next(self._steps), spans=tuple(spans), tensor=tensor)
        started_s = time.thread_time()
        self._stage.run(frame)
        return time.thread_time() - started_s


def _span(start: int, count: int, *, last: bool = True) -> Span:
    pages = (PageRun(first=0, count=-(-(start + count) // PAGE_TOKENS)),)
    return Span(
        sequence=1, start=start, count=count, pages=pages, draws=int(last), sampling=Sampling() if last else None
    )


def _batch(streams: int) -> list[Span]:
    """A row each of sequences with contexts from 100 to 500."""
    contexts = [100 + 400 * stream // max(1, streams - 1) for stream in range(streams)]
    return [
        Span(
            sequence=stream,
            start=context - 1,
            count=1,
            pages=(PageRun(first=SEQUENCE_PAGES * stream, count=SEQUENCE_PAGES),),
            draws=1,
            sampling=Sampling(),
        )
        for stream, context in enumerate(contexts)
    ]


@click.command()
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--dtype", type=click.Choice(DTYPES), default=DTYPES[0])
@click.option("--kv-dtype", type=click.Choice(KV_DTYPES))
@click.option("--repeats", type=click.IntRange(1), default=15)
def main(file: Path, dtype: str, kv_dtype: str | None, repeats: int) -> None:
    """Measure the model in FILE as one stage on one CPU thread."""
    torch.set_num_threads(1)
    card = index_model(file, file.name, lambda done_bytes, total_bytes: None)
    spec = StageSpec(
        model=file.name,
        digest=card.digest,
        first_layer=0,
        last_layer=card.spec.layers - 1,
        dtype=dtype,
        devices=("cpu",),
        pages=PAGES,
        page_tokens=PAGE_TOKENS,
        max_rows=MAX_ROWS,
        kv_dtype=kv_dtype or "",
    )
    stage = load_stage(card, file, spec, lambda done_bytes, total_bytes: None)
    timer = StageTimer(stage, card.spec.vocabulary, repeats)
    timer.fill()
    for context in CONTEXTS:
        print(f"one row at context {context}: {timer.step_ms(_span(context - 1, 1)):.1f} ms")
    for streams in BATCHES:
        print(f"{streams} rows of as many sequences: {timer.step_ms(*_batch(streams)):.1f} ms")
    for rows in CHUNKS:
        print(f"{PROMPT_TOKENS} tokens in chunks of {rows}: {PROMPT_TOKENS / timer.prompt_ms(rows) * 1e3:.0f} tokens/s")
    for start in CHUNK_STARTS:
        print(f"a chunk of 256 after {start} tokens: {timer.step_ms(_span(start, 256, last=False)):.0f} ms")


if __name__ == "__main__":
    main()
