"""Decides how many steps are to be in flight, by the times of the stages and of the links between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coordinator.scheduling.average import Average
from layerline.frames import StageTiming


def decode_steps(stage_times_us: Sequence[float], hop_us: float, stages: int) -> int:
    """The best number of decode steps in flight: `stages`, or one more where the links are slow.

    `stage_times_us` are the times of a step at each stage, empty if they are not known; `hop_us` is the time of a
    frame from one stage to the next, from the coordinator to the first and from the last to the coordinator.

    A round of `stages` steps takes as long as one step's way, sum(times) + (stages + 1) hop, in which each stage is
    idle for as long as all hops take. One step more fills that, but the sequences are then spread over more
    steps, and a step of few decode rows takes no less time than one of many: the round takes
    (stages + 1) max(times). So one more pays only where that is less.
    """
    if not stage_times_us:
        return stages
    way_us = sum(stage_times_us) + (stages + 1) * hop_us
    return stages + (way_us > (stages + 1) * max(stage_times_us))


class StepsInFlight:
    """Learns the times of the `stages` stages of a pipeline and of its links from the steps that come back."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._stage_us = [Average() for _ in range(stages)]
        self._least_travel_us = math.inf
        self.decoding = stages  # steps that are to be in flight while sequences decode

    @property
    def prefilling(self) -> int:
        """Steps that are to be in flight while no sequence decodes.

        The one more waits at the first stage, which so never waits for a result to travel. With decodes it would make
        every step smaller.
        """
        return self.decoding + 1

    def learn(self, timings: Sequence[StageTiming], took_us: float) -> None:
        """Takes in a step without prompt rows that was back after `took_us`.

        Beside its computing a step travels, or waits for its turn; the least such time ever seen is taken for travel.
        """
        if len(timings) != self._stages:
            return
        for average, timing in zip(self._stage_us, timings, strict=True):
            average.add(timing.compute_us)
        travel_us = max(0.0, took_us - sum(timing.compute_us for timing in timings))
        self._least_travel_us = min(travel_us, self._least_travel_us)
        hop_us = self._least_travel_us / (self._stages + 1)
        self.decoding = decode_steps([average.value for average in self._stage_us], hop_us, self._stages)
