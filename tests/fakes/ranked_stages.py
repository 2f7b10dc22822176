"""Stages of several ranks in one process, each rank in a thread of its own, over memory that they really share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from layerline.frames import Frame
from layerline.step_result import StepResult
from node.load_stage import load_stage
from node.ranks import rank_mapping
from node.ranks.group import Alone, RankGroup
from node.ranks.shared_memory import SharedMemoryGroup
from node.stage import Stage
from tests.fakes.tiny_models import StageChain, StoredModel

DEADLINE_S = 60.0
Product = TypeVar("Product")


def shared_groups(count: int, *, deadline_s: float = DEADLINE_S) -> list[SharedMemoryGroup]:
    """The groups of `count` ranks over fresh memory, one for each rank."""
    descriptor = rank_mapping.create(count)
    devices = [f"cpu:{rank}" for rank in range(count)]
    try:
        mappings = [rank_mapping.attach(descriptor, count) for _ in devices]
    finally:
        os.close(descriptor)
    return [SharedMemoryGroup(mappings[rank], rank, devices, deadline_s=deadline_s, looks=1) for rank in range(count)]


def together(works: Sequence[Callable[[], Product]]) -> list[Product]:
    """What all of them return, each in a thread of its own; the first failure in the order of the ranks if any fail."""
    with ThreadPoolExecutor(len(works)) as threads:
        futures = [threads.submit(work) for work in works]
        wait(futures)
    return [future.result() for future in futures]


class RankedStage:
    """A stage like `node.stage.Stage`, of several ranks."""

    def __init__(self, ranks: Sequence[Stage], threads: ThreadPoolExecutor) -> None:
        self.ranks = ranks
        self._threads = threads

    def run(self, frame: Frame) -> Frame | StepResult:
        """Rank 0 runs here, the others follow in their threads."""
        following = [self._threads.submit(rank.follow, frame) for rank in self.ranks[1:]]
        try:
            return self.ranks[0].run(frame)
        finally:
            wait(following)
            for future in following:
                future.result()


@contextmanager
def ranked_chain(
    model: StoredModel, degrees: Sequence[int], *, proportions: Sequence[int] = (), **changes: Any
) -> Iterator[StageChain]:
    """The whole model in stages of as many ranks as `degrees` says; `proportions` are those of each stage."""
    layers, count = model.card.spec.layers, len(degrees)
    with ThreadPoolExecutor(sum(degrees)) as threads:
        stages = [
            RankedStage(
                ranks_of(
                    model, degree, layers * index // count, layers * (index + 1) // count - 1, proportions, **changes
                ),
                threads,
            )
            for index, degree in enumerate(degrees)
        ]
        yield StageChain(stages, model.slots(model.spec(**{**changes, "attention_devices": 0})))


def ranks_of(
    model: StoredModel, count: int, first_layer: int, last_layer: int, proportions: Sequence[int] = (), **changes: Any
) -> list[Stage]:
    """A stage of those layers, as it is on each of its ranks."""
    devices = tuple(f"cpu:{rank}" for rank in range(count))
    spec = model.spec(first_layer, last_layer, devices=devices, proportions=tuple(proportions), **changes)
    groups: Sequence[RankGroup] = shared_groups(count) if count > 1 else [Alone()]
    return [load_stage(model.card, model.path, spec, lambda done_bytes, total_bytes: None, group) for group in groups]
