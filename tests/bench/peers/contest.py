"""layerline and llama.cpp with the same model on the same machines, cores and cables, measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench import usage
from tests.bench.cluster import running_cluster
from tests.bench.effort import Effort
from tests.bench.figures import Figures, Row
from tests.bench.layout import Layout
from tests.bench.models import BenchModel
from tests.bench.peers.layerline_speeds import LayerlineSpeeds
from tests.bench.peers.llama_cpp import LlamaCpp
from tests.bench.peers.llama_speeds import LlamaCppSpeeds
from tests.bench.peers.speeds import Speeds
from tests.bench.placement import Placement
from tests.bench.repetitions import in_turn, ratio_of
from tests.lab.machine import Machine

Measure = Callable[[Speeds, int], float]  # with the number of the repetition


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """Both programs, and the model's file. `nodes` are their machines; layerline's coordinator has one of its own."""

    model: BenchModel
    path: Path
    nodes: tuple[Machine, ...]
    layerline: Speeds
    llama_cpp: Speeds

    def figures(self, case: str, measure: Measure, *, repeats: int, streams: int = 1) -> Figures:
        """What `measure` finds of both, and layerline's over llama.cpp's."""
        ours, theirs = in_turn([partial(measure, self.layerline), partial(measure, self.llama_cpp)], repeats)
        speeds = {"layerline_tokens_per_s": median(ours), "llamacpp_tokens_per_s": median(theirs)}
        row = Row(case=case, model=self.model.key, nodes=len(self.nodes), streams=streams, figures=speeds)
        return Figures(rows=(row,), ratios={f"{case}_over_llamacpp.{self.model.key}": ratio_of(ours, theirs)})


def decode(contest: Contest, case: str, effort: Effort) -> Figures:
    """One stream."""
    return contest.figures(case, lambda speeds, repetition: speeds.decode(effort, repetition), repeats=effort.repeats)


def prefill(contest: Contest, case: str, effort: Effort) -> Figures:
    """One prompt of one chunk."""
    tokens = effort.prompt_tokens
    return contest.figures(case, lambda speeds, repetition: speeds.prompt(tokens, repetition), repeats=effort.repeats)


def long_prefill(contest: Contest, case: str, effort: Effort) -> Figures:
    """One prompt of many chunks."""
    tokens, repeats = effort.long_prompt_tokens, effort.long_repeats
    return contest.figures(case, lambda speeds, repetition: speeds.prompt(tokens, repetition), repeats=repeats)


def crowd(contest: Contest, case: str, effort: Effort, streams: int = 16) -> Figures:
    """Many streams together."""
    return contest.figures(
        case,
        lambda speeds, repetition: speeds.crowd(streams, effort, repetition),
        repeats=effort.long_repeats,
        streams=streams,
    )


@contextmanager
def running_contest(programs: LlamaCpp, model: BenchModel, layout: Layout, placement: Placement) -> Iterator[Contest]:
    """The contest on such machines: layerline's cluster is loaded and idle while llama.cpp is measured beside it."""
    path = model.fetch()
    with running_cluster(model, layout, placement) as cluster:
        for node in cluster.nodes if layout.threads > 1 else ():
            usage.keep_to(node.pids(), range(layout.threads))
        yield Contest(
            model=model,
            path=path,
            nodes=cluster.nodes,
            layerline=LayerlineSpeeds(cluster),
            llama_cpp=LlamaCppSpeeds(programs, path, model.layers, cluster.nodes, layout.threads),
        )
