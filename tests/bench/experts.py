"""Case experts: how fast one stream decodes with a model of experts, and how well two ranks share them.

Beside the first is a dense model that reads as many bytes. Both are random models of Qwen3's shape, one stage computed
by the kernels in processes of its own. A token of the one reads 8 of 64 experts in each layer, and hardly ever those of
the token before; that of the other reads one feed-forward as large as 8 experts. Steps of 32 rows, one of each
sequence, are computed by one rank and by two ranks of a thread each, which have half of the experts whole, or half of
the columns of each. Needs no lab and no model from outside.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.effort import Effort
from tests.bench.expert_models import write_model
from tests.bench.expert_ranks import RankedProcesses
from tests.bench.figures import Figures, Row
from tests.bench.repetitions import in_turn, ratio_of

CROWD_ROWS = 32
CROWD_STEPS = 12


def measure(effort: Effort) -> Figures:
    """The speed of one stream with each model, and of a crowd on one rank and on two."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: write_model(Path(folder) / f"{kind}.gguf", kind) for kind in ("experts", "dense")}
        one_stream, crowd = _one_stream(paths, effort), _crowd(paths["experts"], effort)
    return Figures(rows=(*one_stream.rows, *crowd.rows), ratios={**one_stream.ratios, **crowd.ratios})


def _one_stream(paths: dict[str, Path], effort: Effort) -> Figures:
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ExitStack() as held:
        found = _in_turn(
            {kind: held.enter_context(RankedProcesses(path, threads=threads)) for kind, path in paths.items()},
            rows=1,
            steps=effort.answer_tokens,
            repeats=effort.repeats,
        )
    rows = [_row(kind, 1, {"tokens_per_s": 1 / median(times)}) for kind, times in found.items()]
    return Figures(rows=tuple(rows), ratios={"moe_decode_over_dense": 1 / ratio_of(found["experts"], found["dense"])})


def _crowd(path: Path, effort: Effort) -> Figures:
    with ExitStack() as held:
        ranks = {
            "1 rank": RankedProcesses(path, threads=1),
            "2 ranks, spread": RankedProcesses(path, threads=1, ranks=2, experts="spread"),
            "2 ranks, split": RankedProcesses(path, threads=1, ranks=2, experts="split"),
        }
        found = _in_turn(
            {name: held.enter_context(each) for name, each in ranks.items()},
            rows=CROWD_ROWS,
            steps=CROWD_STEPS,
            repeats=effort.repeats,
        )
    rows = [_row(name, CROWD_ROWS, {"tokens_per_s": CROWD_ROWS / median(times)}) for name, times in found.items()]
    one, spread, split = found.values()
    return Figures(
        rows=tuple(rows), ratios={"ep2_over_1": ratio_of(one, spread), "split2_over_1": ratio_of(one, split)}
    )


def _in_turn(processes: dict[str, RankedProcesses], *, rows: int, steps: int, repeats: int) -> dict[str, list[float]]:
    """The seconds of a step of each."""
    measures = [partial(each.step_s, rows, steps) for each in processes.values()]
    return dict(zip(processes, in_turn(measures, repeats), strict=True))


def _row(model: str, streams: int, figures: dict[str, float]) -> Row:
    return Row(case="experts", model=model, nodes=1, streams=streams, figures=figures)
