"""A stage of a model in GGUF whose ranks are processes, each on a core of its own, and the time of its steps.

Started as `python -m tests.bench.expert_ranks PATH RANK RANKS EXPERTS THREADS SHARED LINE`. Rank 0 reads a line of
rows, steps and seed from standard input and prints the seconds of a step, the others follow it over a line as in a
worker.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Self

import numpy as np

from layerline.frames import Frame, PageRun, Sampling, Span, TensorBytes
from layerline.hosting.child import compute_environment
from layerline.models.index import index_model
from layerline.plan import StageSpec
from node.load_stage import load_stage
from node.ranks import rank_mapping
from node.stage import Stage
from node.worker.rank_group import joined
from node.worker.rank_line import LineEndedError, RankLine, pack_step
from tests.bench.expert_models import CONTEXT_TOKENS
from tests.fakes.tiny_tokenizer import tokens

WARM_STEPS = 2
PAGE_TOKENS = 16
MOST_ROWS = 64
NONE = -1


class RankedProcesses:
    """The stage, for the time of a block."""

    def __init__(self, path: Path, *, threads: int, ranks: int = 1, experts: str = "split") -> None:
        self._path, self._threads, self._ranks, self._experts = path, threads, ranks, experts
        self._children: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        shared = rank_mapping.create(self._ranks) if self._ranks > 1 else NONE
        ends = socket.socketpair() if self._ranks > 1 else ()
        lines = [end.fileno() for end in ends] or [NONE]
        for rank in range(self._ranks):
            own = [self._path, rank, self._ranks, self._experts, self._threads, shared, lines[rank]]
            command = [sys.executable, "-m", "tests.bench.expert_ranks", *map(str, own)]
            passed = [each for each in (shared, lines[rank]) if each != NONE]
            environment = compute_environment(os.environ, self._threads)
            pipe = subprocess.PIPE
            child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, pass_fds=passed, env=environment)
            self._children.append(child)
        for end in ends:
            end.close()
        if shared != NONE:
            os.close(shared)
        return self

    def __exit__(self, *_ended: object) -> None:
        for child in self._children:
            child.kill()
            child.communicate()

    def step_s(self, rows: int, steps: int, seed: int) -> float:
        """The median time of so many steps of so many rows, one of each sequence, of random tokens."""
        child = self._children[0]
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{rows} {steps} {seed}\n")
        child.stdin.flush()
        return float(child.stdout.readline())


def main() -> None:
    """Loads a rank's part and computes what is asked for, or what comes over the line."""
    path, experts = Path(sys.argv[1]), sys.argv[4]
    rank, ranks, threads, shared, line = (int(sys.argv[index]) for index in (2, 3, 5, 6, 7))
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    card = index_model(path, path.stem, lambda _done_bytes, _total_bytes: None)
    spec = StageSpec(
        model=path.stem,
        digest=card.digest,
        first_layer=0,
        last_layer=card.spec.layers - 1,
        dtype="float32",
        devices=tuple(f"cpu:{each}" for each in range(ranks)),
        pages=MOST_ROWS * CONTEXT_TOKENS // PAGE_TOKENS,
        page_tokens=PAGE_TOKENS,
        max_rows=MOST_ROWS,
        precision="standard",
        weights="stored",
        kv_dtype="float16",
        experts=experts,
    )
    with joined(None if shared == NONE else shared, rank, spec.devices, deadline_s=600.0) as group:
        stage = load_stage(card, path, spec, lambda _done_bytes, _total_bytes: None, group, threads)
        way = None if line == NONE else RankLine(socket.socket(fileno=line), "the other rank")
        if rank:
            assert way is not None
            _follow(stage, way)
        else:
            _lead(stage, way)


def _follow(stage: Stage, line: RankLine) -> None:
    while True:
        try:
            frame = line.receive()
        except LineEndedError:
            return
        if isinstance(frame, Frame):
            stage.follow(frame)


def _lead(stage: Stage, line: RankLine | None) -> None:
    for asked in sys.stdin:
        rows, steps, seed = map(int, asked.split())
        random, times = np.random.default_rng(seed), list[float]()
        for step in range(WARM_STEPS + steps):
            frame = _frame(step, random.integers(3, len(tokens()), rows).astype(np.int32))
            started_s = time.perf_counter()
            if line is not None:
                line.send(pack_step(frame))
            stage.run(frame)
            times.append(time.perf_counter() - started_s)
        print(median(times[WARM_STEPS:]), flush=True)


def _frame(step: int, ids: np.ndarray) -> Frame:
    """A row of each of as many sequences, after those of the steps before."""
    pages = CONTEXT_TOKENS // PAGE_TOKENS
    spans = tuple(
        Span(
            sequence=place + 1,
            start=step,
            count=1,
            pages=(PageRun(first=place * pages, count=pages),),
            draws=1,
            sampling=Sampling(),
        )
        for place in range(len(ids))
    )
    return Frame(
        epoch=1, step=step + 1, spans=spans, tensor=TensorBytes(dtype="int32", shape=ids.shape, data=ids.tobytes())
    )


if __name__ == "__main__":
    main()
