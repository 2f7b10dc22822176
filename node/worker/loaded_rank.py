"""A worker's loading: its rank's part of a stage and its ways to the other ranks, with every failure put in words."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from layerline.errors import LayerlineError, ModelCorruptError, StageFailedError
from layerline.models.card import ModelCard
from layerline.plan import StageSpec
from node import pipe
from node.ranks.group import RankGroup
from node.step.computation import StageExperts
from node.worker.follower import Follows
from node.worker.rank_group import joined
from node.worker.rank_line import RankLine
from node.worker.stage_compute import RankCompute

PROGRESS_STEPS = 100

log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]
TellProgress = Callable[[pipe.Progress], None]


class Part(RankCompute, Follows, Protocol):
    """A rank's part of a stage in memory: `node.stage.Stage`, or a fake in tests."""

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights."""

    @property
    def kv_bytes(self) -> int:
        """Bytes of the pages."""

    @property
    def experts(self) -> StageExperts:
        """The experts of its layers."""


LoadPart = Callable[[ModelCard, Path, StageSpec, Progress, RankGroup, int], Part]
"""The last is how many threads a CPU computes with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedRank:
    """A rank that is ready to compute. `lines` are those of rank 0 to each other in turn, or of another to rank 0."""

    card: ModelCard
    part: Part
    lines: tuple[RankLine, ...]

    def started(self, port: int) -> pipe.Started:
        """What the daemon is told of it."""
        return pipe.Started(port=port, weights_bytes=self.part.weights_bytes, kv_bytes=self.part.kv_bytes)


@contextmanager
def loaded_rank(start: pipe.Start, load: LoadPart, tell: TellProgress, deadline_s: float) -> Iterator[LoadedRank]:
    """The rank of `start` with what `load` makes of its part; progress is told a hundred times at most.

    `deadline_s` is how long the ranks wait for each other in a step. What cannot be loaded is a LayerlineError.
    """
    with ExitStack() as held:
        lines = tuple(held.enter_context(_line(start, index, deadline_s)) for index in range(len(start.lines)))
        group = held.enter_context(joined(start.shared, start.rank, start.spec.devices, deadline_s=deadline_s))
        with _in_words(start):
            card = ModelCard.from_bytes(Path(start.card_path).read_bytes())
            part = load(card, Path(start.model_path), start.spec, _in_hundredths(tell), group, start.threads)
        yield LoadedRank(card=card, part=part, lines=lines)


@contextmanager
def _line(start: pipe.Start, index: int, deadline_s: float) -> Iterator[RankLine]:
    other = index + 1 if start.rank == 0 else 0
    with socket.socket(fileno=start.lines[index]) as line:
        yield RankLine(line, f"Rank {other} ({start.spec.devices[other]})", deadline_s=deadline_s)


def _in_hundredths(tell: TellProgress) -> Progress:
    last_part = -1

    def report(done_bytes: int, total_bytes: int) -> None:
        nonlocal last_part
        part = PROGRESS_STEPS * done_bytes // max(1, total_bytes)
        if part != last_part:
            last_part = part
            tell(pipe.Progress(done_bytes=done_bytes, total_bytes=total_bytes))

    return report


@contextmanager
def _in_words(start: pipe.Start) -> Iterator[None]:
    try:
        yield
    except LayerlineError:
        raise
    except OSError as failure:
        message = f"A file of model {start.spec.model} cannot be read on node {start.node} ({failure})."
        raise ModelCorruptError(message, node=start.node, remedy="Check the file and the disk.") from failure
    except (RuntimeError, MemoryError) as failure:
        log.exception("Loading failed.")
        message = (
            f"Node {start.node} cannot load layers {start.spec.first_layer} to {start.spec.last_layer} ({failure})."
        )
        remedy = "If memory ran out, give the node a smaller --memory."
        raise StageFailedError(message, node=start.node, remedy=remedy) from failure
