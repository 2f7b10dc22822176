"""Has the nodes of a pipeline move experts where that makes the load of their ranks even: one layer at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from coordinator.balancing.ledger import ExpertLedger
from layerline.errors import LayerlineError
from layerline.hold import LayerPlacement, LayerRows
from layerline.models.expert_placement import ExpertPlacement

PAUSES_S = (5.0, 30.0, 120.0)  # after one failed move, after several

log = logging.getLogger(__name__)


class MovesExperts(Protocol):
    """The hold on a node: `coordinator.node_hold.NodeHold`, or a fake."""

    async def move_experts(self, stage: int, placement: LayerPlacement) -> None:
        """Has the stage place the experts of a layer so; raises why they stay where they are."""


class Balancer:
    """Of the stage that `ledger` is about, and that has this number on the `hold` of its node.

    After failed moves it pauses for so many seconds.
    """

    def __init__(
        self, hold: MovesExperts, number: int, ledger: ExpertLedger, *, pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._hold = hold
        self._number = number
        self._ledger = ledger
        self._pauses_s = pauses_s
        self._counted = asyncio.Event()

    def counted(self, layers: Iterable[LayerRows]) -> None:
        """The node told how many rows chose its experts."""
        self._ledger.counted(layers)
        self._counted.set()

    async def run(self) -> None:
        """Works until it is cancelled. What goes wrong on the node costs a pause, since answers go on without it."""
        failures = 0
        while self._ledger.are_spread:
            await self._counted.wait()
            self._counted.clear()
            try:
                await self._move_what_is_worth_it()
                failures = 0
            except LayerlineError as error:
                pause_s = self._pauses_s[min(failures, len(self._pauses_s) - 1)]
                failures += 1
                log.warning("Experts stay where they are for %.0f s. %s", pause_s, error)
                await asyncio.sleep(pause_s)

    async def _move_what_is_worth_it(self) -> None:
        while (candidate := self._ledger.candidate()) is not None:
            better = await asyncio.to_thread(candidate.better)
            if better is None:
                self._ledger.refused(candidate.layer)
                continue
            await self._move(candidate.layer, better)

    async def _move(self, layer: int, placement: ExpertPlacement) -> None:
        await self._hold.move_experts(self._number, LayerPlacement.of(layer, placement))
        self._ledger.moved(layer, placement)
        log.info("Experts of layer %d have moved.", layer)
