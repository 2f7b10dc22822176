"""`python -m tests.bench.peers.file_read FILE` prints the seconds it takes to read FILE once and hash it."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

BLOCK_BYTES = 1 << 20


def read_s(path: Path) -> float:
    """The seconds for it, with what the system has of the file in memory."""
    began_s = time.perf_counter()
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    digest.hexdigest()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    print(read_s(Path(sys.argv[1])))
