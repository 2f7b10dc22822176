"""The real worker program with a fault in one rank: `python tests/fakes/faulty_rank.py RANK POINT FAULT DEADLINE_S`.

POINT is "load" (before anything is read), "step" (between two sums of the first step that follows, or, where one rank
has nothing to sum, as that step begins) or "move" (while it prepares a move of experts); FAULT is "kill", "freeze",
"raise" or, in a move, "memory" or "slow". RANK -1 is none of them, so that all is well. DEADLINE_S is how long ranks
wait for each other.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from layerline.frames import Frame
from layerline.models.card import ModelCard
from layerline.models.expert_placement import ExpertPlacement
from layerline.plan import StageSpec
from layerline.step_result import StepResult
from node.load_stage import load_stage
from node.ranks.group import RankGroup
from node.stage import Stage
from node.worker import program
from node.worker.loaded_rank import Part, Progress

STRUCK_SUM = 2  # the embedding's comes first, then two of each layer


def main() -> None:
    rank, point, fault, deadline_s = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])

    def load(card: ModelCard, path: Path, spec: StageSpec, progress: Progress, group: RankGroup, threads: int) -> Part:
        if group.rank == rank and point == "load":
            strike(fault)
        if group.rank == rank and point == "step":
            if group.count == 1:
                return FaultyStage(load_stage(card, path, spec, progress, group, threads))
            group = FaultyGroup(group, lambda: strike(fault))
        stage = load_stage(card, path, spec, progress, group, threads)
        if group.rank == rank and point == "move":
            return FaultyMoves(stage, fault)
        return stage

    class FaultyStage:
        """A stage that does something else instead of a step."""

        def __init__(self, stage: Stage) -> None:
            self.weights_bytes, self.kv_bytes, self.experts = stage.weights_bytes, stage.kv_bytes, stage.experts
            self.follow = stage.follow
            self._stage = stage

        def run(self, frame: Frame) -> Frame | StepResult:
            strike(fault)
            return self._stage.run(frame)

    program.main(load, deadline_s)


class FaultyMoves:
    """A stage whose experts do something else than to be prepared the first time."""

    def __init__(self, stage: Stage, fault: str) -> None:
        self.weights_bytes, self.kv_bytes = stage.weights_bytes, stage.kv_bytes
        self.run, self.follow, self.rows = stage.run, stage.follow, stage.experts.rows
        self.experts = self
        self._stage, self._fault = stage, fault

    def prepared(self, layer: int, placement: ExpertPlacement) -> Callable[[], None]:
        fault, self._fault = self._fault, ""
        if fault:
            strike(fault)
        return self._stage.experts.prepared(layer, placement)


def strike(fault: str) -> None:
    if fault == "slow":
        time.sleep(1.0)
        return
    if fault == "memory":
        raise MemoryError
    if fault == "raise":
        raise RuntimeError("out of luck")
    os.kill(os.getpid(), signal.SIGSTOP if fault == "freeze" else signal.SIGKILL)
    time.sleep(0.5)  # another thread may be the first to be stopped


class FaultyGroup:
    """A group that does something else instead of one of its sums."""

    def __init__(self, group: RankGroup, strike: Callable[[], None]) -> None:
        self.rank = group.rank
        self.count = group.count
        self._group = group
        self._strike = strike
        self._sums = 0

    def all_reduce_(self, x: Tensor) -> None:
        self._sums += 1
        if self._sums == STRUCK_SUM:
            self._strike()
        self._group.all_reduce_(x)

    def gather(self, x_TI: Tensor) -> tuple[Tensor, ...] | None:
        return self._group.gather(x_TI)


if __name__ == "__main__":
    main()
