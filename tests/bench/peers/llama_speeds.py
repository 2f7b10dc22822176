"""The speeds of llama.cpp on the machines of a cluster, by its own programs that measure.

On two machines each figure is taken where it was found to be best. Tokens: an RPC server on each, the last layers and
the output matrix on the machine that asks, whose logits then stay off the cable. Prompts: half of the layers on the
other machine, and chunks of 64, so that both compute at the same time; more than one server was slower at that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.effort import Effort
from tests.bench.peers.first import run_first
from tests.bench.peers.llama_cpp import LlamaCpp
from tests.bench.peers.llama_output import batched_tokens_per_s, bench_tokens_per_s
from tests.bench.peers.rpc_servers import rpc_servers
from tests.lab.machine import Machine

SHORT_PROMPT_TOKENS = 32
CROWD_PROMPT_TOKENS = 16
RPC_CHUNK_TOKENS = 64
ALL_LAYERS = "99"


class LlamaCppSpeeds:
    """Those with the model at `path`, of `layers` layers, on `nodes`: one, with `threads` cores, or two of one core.

    It loads the model at each measurement, which is not counted, and computes each once before, or a little of it.
    """

    def __init__(self, programs: LlamaCpp, path: Path, layers: int, nodes: Sequence[Machine], threads: int = 1) -> None:
        self._programs = programs
        self._path = path
        self._layers = layers
        self._nodes = tuple(nodes)
        self._threads = threads

    def decode(self, effort: Effort, repetition: int) -> float:
        """One stream."""
        with self._for_tokens("/") as placement:
            return self._bench([*placement, "--n-depth", str(SHORT_PROMPT_TOKENS)], new_tokens=effort.answer_tokens)

    def prompt(self, prompt_tokens: int, repetition: int) -> float:
        """One prompt."""
        with self._for_prompts() as placement:
            return self._bench(placement, prompt_tokens=prompt_tokens)

    def crowd(self, streams: int, effort: Effort, repetition: int) -> float:
        """As many streams, which have their prompts already."""
        new_tokens = 2 * effort.answer_tokens
        sizes = {"-npp": CROWD_PROMPT_TOKENS, "-ntg": new_tokens, "-npl": streams}
        sizes["--ctx-size"] = streams * (CROWD_PROMPT_TOKENS + new_tokens)
        with self._for_tokens(",") as placement:
            words = [*self._words(self._programs.batched_bench), *placement, "--output-format", "jsonl"]
            words += [word for name, size in sizes.items() for word in (name, str(size))]
            printed = run_first(self._nodes[0], words, range(self._threads))
        return batched_tokens_per_s(printed, streams=streams, new_tokens=new_tokens, threads=self._threads)

    def _bench(self, placement: Sequence[str], *, prompt_tokens: int = 0, new_tokens: int = 0) -> float:
        words = [*self._words(self._programs.bench), *placement, "--repetitions", "1", "--output", "json"]
        words += ["--n-prompt", str(prompt_tokens), "--n-gen", str(new_tokens)]
        printed = run_first(self._nodes[0], words, range(self._threads))
        backend = "CPU" if len(self._nodes) == 1 else "RPC"
        return bench_tokens_per_s(
            printed, prompt_tokens=prompt_tokens, new_tokens=new_tokens, threads=self._threads, backend=backend
        )

    def _words(self, program: str) -> list[str]:
        return [program, "--model", str(self._path), "--threads", str(self._threads)]

    @contextmanager
    def _for_tokens(self, separator: str) -> Iterator[list[str]]:
        """Where layers are when tokens are decoded; the programs write lists of shares unlike each other."""
        if len(self._nodes) == 1:
            yield []
            return
        here, there = self._nodes
        with rpc_servers(self._programs.rpc_server, [(there, 1), (here, 0)]) as addresses:
            yield ["--rpc", addresses, "--n-gpu-layers", ALL_LAYERS, "--tensor-split", separator.join("11")]

    @contextmanager
    def _for_prompts(self) -> Iterator[list[str]]:
        if len(self._nodes) == 1:
            yield []
            return
        there_layers = self._layers // 2 + 1  # the output matrix counts as one
        with rpc_servers(self._programs.rpc_server, [(self._nodes[1], 1)]) as addresses:
            chunks = ["--ubatch-size", str(RPC_CHUNK_TOKENS)]
            yield ["--rpc", addresses, "--n-gpu-layers", str(there_layers), *chunks]
