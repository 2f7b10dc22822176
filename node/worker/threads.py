"""Whether this process can start the threads that serving takes, asked before gRPC is.

Where a limit is in the way (of address space, of processes), gRPC tries for ten seconds and then aborts, or waits for
ever.
"""

from __future__ import annotations

import os
import threading

from layerline.errors import StageFailedError

GRPC_THREADS = 6 + max(2, min(16, os.cpu_count() or 1))  # a pool of one a core within bounds, and its keepers


def check_threads(node: str, count: int = GRPC_THREADS) -> None:
    """StageFailedError if this process cannot have so many threads more."""
    started: list[threading.Thread] = []
    over = threading.Event()
    try:
        for _ in range(count):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as failure:
        message = f"A worker of node {node} cannot have the {count} threads that it takes ({failure})."
        remedy = "Raise this user's limits of memory (ulimit -v) and of processes (ulimit -u), or close other programs."
        raise StageFailedError(message, node=node, remedy=remedy) from failure
    finally:
        over.set()
        for thread in started:
            thread.join()
