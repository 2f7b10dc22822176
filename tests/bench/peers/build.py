"""Building llama.cpp, once for every kind of processor, into the cache.

The programs come into their folder by one renaming after all of them are there, so that what is in the cache is whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from tests.bench.peers.llama_cpp import LlamaCpp
from tests.bench.peers.processor import processor_key
from tests.bench.peers.programs import require_programs, run_to_end
from tests.bench.peers.source import VERSION, fetch_source
from tests.lab.commands import LabError

OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "GGML_NATIVE": "ON",
    "GGML_RPC": "ON",
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_SERVER": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_OPENSSL": "OFF",
}
CONFIGURE_DEADLINE_S = 300.0
BUILD_DEADLINE_S = 5400.0


def built_llama_cpp() -> LlamaCpp:
    """The programs of llama.cpp: those in the cache, else built now, which takes minutes. LabError says why not."""
    peers = _cache_folder() / "peers"
    programs = LlamaCpp(peers / f"llama.cpp-{VERSION}-{processor_key()}")
    if not programs.are_there:
        peers.mkdir(parents=True, exist_ok=True)
        with _alone(peers) as folder:
            _build(folder, programs)
    return programs


def _cache_folder() -> Path:
    return Path(os.environ.get("LAYERLINE_CACHE") or platformdirs.user_cache_dir("layerline")).absolute()


@contextmanager
def _alone(peers: Path) -> Iterator[Path]:
    """An empty folder to build in, which nobody else uses, gone afterwards; a killed run's is emptied."""
    folder = peers / ".building"
    with open(peers / ".building.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError("another run is building llama.cpp; wait for its end") from None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _build(folder: Path, programs: LlamaCpp) -> None:
    """Builds in `folder` and puts the programs in their place."""
    require_programs("cmake", "cc", "c++", purpose="Building llama.cpp")
    print(f"Fetching the source of llama.cpp ({VERSION}) ...", file=sys.stderr, flush=True)
    source = fetch_source(folder)
    print("Building llama.cpp (once; some minutes) ...", file=sys.stderr, flush=True)
    build = folder / "build"
    definitions = [f"-D{name}={value}" for name, value in OPTIONS.items()]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", "-S", str(source), "-B", str(build), *generator, *definitions]
    run_to_end("cmake", configure, folder=folder, deadline_s=CONFIGURE_DEADLINE_S)
    jobs = str(len(os.sched_getaffinity(0)))
    words = ["nice", "-n", "10", "cmake", "--build", str(build), "--parallel", jobs, "--target", *LlamaCpp.NAMES]
    run_to_end("cmake", words, folder=folder, deadline_s=BUILD_DEADLINE_S)
    if not LlamaCpp(build / "bin").are_there:
        raise LabError("cmake built llama.cpp and left some of its programs out")
    shutil.rmtree(programs.folder, ignore_errors=True)  # one that somebody has taken a program out of
    (build / "bin").rename(programs.folder)
