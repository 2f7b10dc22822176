"""One rank of a measurement, apart from the daemon: `python -m node.worker.all_reduce_child RANK SHARED DEVICE...`.

SHARED is the descriptor that all ranks have. Rank 0 prints the microseconds of one all-reduce as a JSON number.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

from layerline.facts import ALL_REDUCE_BYTES
from layerline.hosting.child import end_with_parent
from node.ranks.measure import measure_all_reduce
from node.worker.rank_group import joined

TRIES = 8  # over two seconds, so that another program's moment does not count for good
PAUSE_S = 0.25
JOIN_DEADLINE_S = 60.0  # a cold start of torch may take some ranks far longer than others


def main() -> None:
    """Takes part as the rank named on the command line."""
    end_with_parent()
    rank, shared, devices = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dtype = torch.bfloat16
    device = torch.device("cpu" if devices[rank].startswith("cpu") else devices[rank])
    with joined(shared, rank, devices, deadline_s=JOIN_DEADLINE_S) as group:
        medians_us = []
        for _ in range(TRIES):
            medians_us.append(measure_all_reduce(group, ALL_REDUCE_BYTES // dtype.itemsize, dtype, device).p50_us)
            time.sleep(PAUSE_S)
    if rank == 0:
        print(json.dumps(min(medians_us)), flush=True)  # whatever else runs here only ever adds to it


if __name__ == "__main__":
    main()
