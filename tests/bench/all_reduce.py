"""How long CPU ranks take to sum one hidden state: `python -m tests.bench.all_reduce [--ranks 2] [--dtype bfloat16]`.

Prints `allreduce_us`, which docs/performance.md quotes. Each rank is a process of one thread, as in a stage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import click
import torch

from layerline.plan import DTYPES
from node.model.tensors import TORCH_DTYPES
from node.ranks import rank_mapping
from node.ranks.measure import REPEATS, AllReduceTimes, measure_all_reduce
from node.ranks.shared_memory import SharedMemoryGroup

VALUES = 896  # a hidden state of Qwen2.5-0.5B
DEADLINE_S = 120.0


def measure_between_processes(
    ranks: int = 2, values: int = VALUES, dtype: str = "bfloat16", repeats: int = REPEATS
) -> AllReduceTimes:
    """What rank 0 of that many fresh processes measures."""
    descriptor = rank_mapping.create(ranks)
    options = ["--ranks", str(ranks), "--values", str(values), "--dtype", dtype, "--repeats", str(repeats)]
    command = [sys.executable, "-m", "tests.bench.all_reduce", *options, "--descriptor", str(descriptor)]
    try:
        children = [
            subprocess.Popen([*command, "--rank", str(rank)], stdout=subprocess.PIPE, pass_fds=[descriptor])
            for rank in range(ranks)
        ]
    finally:
        os.close(descriptor)
    try:
        outputs = [child.communicate(timeout=DEADLINE_S)[0] for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    times = json.loads(outputs[0])
    return AllReduceTimes(p50_us=times["p50_us"], p99_us=times["p99_us"])


def _as_rank(rank: int, descriptor: int, ranks: int, values: int, dtype: str, repeats: int) -> AllReduceTimes:
    torch.set_num_threads(1)
    devices = [f"cpu:{number}" for number in range(ranks)]
    group = SharedMemoryGroup(rank_mapping.attach(descriptor, ranks), rank, devices)
    return measure_all_reduce(group, values, TORCH_DTYPES[dtype], torch.device("cpu"), repeats)


@click.command()
@click.option("--ranks", type=click.IntRange(2, rank_mapping.MAX_RANKS), default=2, show_default=True)
@click.option("--values", type=click.IntRange(1), default=VALUES, show_default=True)
@click.option("--dtype", type=click.Choice(DTYPES), default=DTYPES[0], show_default=True)
@click.option("--repeats", type=click.IntRange(1), default=REPEATS, show_default=True)
@click.option("--rank", type=int, hidden=True)
@click.option("--descriptor", type=int, hidden=True)
def main(ranks: int, values: int, dtype: str, repeats: int, rank: int | None, descriptor: int | None) -> None:
    """Measure the all-reduce of one row between processes on this machine."""
    if rank is not None and descriptor is not None:
        times = _as_rank(rank, descriptor, ranks, values, dtype, repeats)
        print(json.dumps({"p50_us": times.p50_us, "p99_us": times.p99_us}))
        return
    times = measure_between_processes(ranks, values, dtype, repeats)
    print(f"allreduce_us of {values} values in {dtype} over {ranks} ranks:", end=" ")
    print(f"p50 {times.p50_us:.1f}, p99 {times.p99_us:.1f}")


if __name__ == "__main__":
    main()
