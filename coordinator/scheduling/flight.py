"""How many decode steps are to be in flight, from the time of the stages and of the links between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coordinator.scheduling.average import Average
from layerline.frames import StageTiming


def steps_in_flight(stage_times_us: Sequence[float], hop_us: float, stages: int) -> int:
    """`stages`, or one more where the links are slow.

    `stage_times_us` is what a step takes at each stage, empty if that is not known; `hop_us` is what it takes from one
    to the next, from the coordinator to the first and from the last to the coordinator.

    A round of `stages` steps takes as long as one step's way, sum(times) + (stages + 1) hop, in which each stage is
    idle for as long as all hops take. One step more fills that, but the sequences are then spread over more
    steps, and a step of few decode rows takes no less time than one of many: the round takes
    (stages + 1) max(times). So one more pays only where that is less.
    """
    if not stage_times_us:
        return stages
    way_us = sum(stage_times_us) + (stages + 1) * hop_us
    return stages + (way_us > (stages + 1) * max(stage_times_us))


class Flight:
    """Learns the times of stages and links of a pipeline of `stages` stages from the steps that come back."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._stage_us = [Average() for _ in range(stages)]
        self._least_travel_us = math.inf
        self.steps = stages  # that are to be in flight

    def learn(self, timings: Sequence[StageTiming], took_us: float) -> None:
        """Takes in a decode step that was back after `took_us`.

        What it was not computed in, it travelled, or waited for its turn; the least of that ever seen is travel.
        """
        if len(timings) != self._stages:
            return
        for average, timing in zip(self._stage_us, timings, strict=True):
            average.add(timing.compute_us)
        travel_us = max(0.0, took_us - sum(timing.compute_us for timing in timings))
        self._least_travel_us = min(travel_us, self._least_travel_us)
        hop_us = self._least_travel_us / (self._stages + 1)
        self.steps = steps_in_flight([average.value for average in self._stage_us], hop_us, self._stages)
