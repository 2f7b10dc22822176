"""What is known of the experts of one stage: how many rows chose each, where they are, and whether a move is worth it.

Owns the counts of a pipeline, as they are told by its node. Pure but for the clock that is given to it.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coordinator.balancing.placement_search import (
    Loads,
    Ranks,
    beside_share,
    better_placement,
    popular_placement,
    rows_of_ranks,
)
from layerline.checks import require
from layerline.errors import ProtocolError
from layerline.hold import LayerPlacement, LayerRows
from layerline.models.expert_placement import ExpertPlacement
from layerline.models.model_parts import expert_ranges
from layerline.plan import StagePlan
from layerline.sharing import MOST_COMING
from layerline.stats_report import ExpertStats, LayerExpertStats

TOLERATED = 1.1  # the busiest rank over the mean
SURE = 3.0  # times what chance alone may add to that
LEAST_GAIN = 0.05  # of the busiest over the mean, for which experts move
WINDOW_PAIRS = 1 << 16  # rows of experts by which a layer is judged, the later ones
RECENT_S = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A layer whose experts could be better placed, with what the search for that is told."""

    layer: int
    placement: ExpertPlacement
    rows_N: Loads
    ranks: Ranks

    def better(self) -> ExpertPlacement | None:
        """A placement that is worth the move, if there is one. It takes some tenths of a second where there are
        many.
        """
        if self.ranks.on_device is not None:
            found = popular_placement(self.placement, self.rows_N, self.ranks)
        else:
            found = better_placement(self.placement, self.rows_N, self.ranks)
        before, after = (self._worth(each) for each in (self.placement, found))
        return found if after < before - LEAST_GAIN else None

    def _worth(self, placement: ExpertPlacement) -> float:
        """What is to be small: the rows that are computed beside the devices, or the busiest rank's over the mean."""
        if self.ranks.on_device is not None:
            return beside_share(placement, self.rows_N, self.ranks)
        return self.ranks.busiest_over_mean(rows_of_ranks(placement, self.rows_N))


@dataclass(slots=True)
class _Layer:
    """One layer: rows of its experts since the stage was loaded, those it is judged by, and rows of its ranks."""

    placement: ExpertPlacement | None
    ranks: Ranks
    told_N: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    window_N: Loads = field(default_factory=lambda: np.zeros(0))
    of_ranks_R: Loads = field(default_factory=lambda: np.zeros(0))

    def count(self, rows: tuple[int, ...]) -> None:
        told_N = np.array(rows, np.int64)
        if len(self.told_N) != len(told_N) or (told_N < self.told_N).any():  # the first, or of another stage
            self.told_N = np.zeros_like(told_N)
            self.window_N, self.of_ranks_R = np.zeros(len(rows)), np.zeros(len(self.ranks.dues))
        new_N = (told_N - self.told_N).astype(np.float64)
        self.told_N = told_N
        kept = max(0.0, WINDOW_PAIRS - new_N.sum()) / max(1.0, self.window_N.sum())
        self.window_N = self.window_N * min(1.0, kept) + new_N
        if self.placement is None:  # each rank has its part of every expert
            self.of_ranks_R = self.of_ranks_R + new_N.sum() * np.array(self.ranks.dues)
        else:
            self.of_ranks_R = self.of_ranks_R + rows_of_ranks(self.placement, new_N)

    @property
    def excess(self) -> float:
        """How far the busiest rank is over what is tolerated, or rows are beside the devices that need not be.

        Chance is allowed for. Not positive: it is well.
        """
        pairs = float(self.window_N.sum())
        if self.placement is None or not pairs:
            return -math.inf
        chance = SURE * math.sqrt(len(self.ranks.dues) / pairs)
        if self.ranks.on_device is not None:
            popular = popular_placement(self.placement, self.window_N, self.ranks)
            own, best = (beside_share(each, self.window_N, self.ranks) for each in (self.placement, popular))
            return own - best - LEAST_GAIN - chance
        own = self.ranks.busiest_over_mean(rows_of_ranks(self.placement, self.window_N))
        return own - TOLERATED - chance


class ExpertLedger:
    """That of a stage, which was loaded with these `placements`; `clock` is monotonic, in seconds."""

    def __init__(
        self,
        number: int,
        stage: StagePlan,
        placements: Iterable[LayerPlacement] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._number = number
        self._stage = stage
        self._clock = clock
        self._weights = stage.spec.sharing.weights
        self._layers: dict[int, _Layer] = {}
        self._first = dict(map(self._checked, placements))
        self._refused: dict[int, int] = {}  # layers of which the search found nothing better, until so many rows
        self._past: deque[tuple[float, Mapping[int, Loads]]] = (
            deque()
        )  # rows of ranks before a second's, the last minute
        self.moves = 0

    @property
    def are_spread(self) -> bool:
        """Whether experts can be moved."""
        return bool(self._first)

    def counted(self, layers: Iterable[LayerRows]) -> None:
        """These rows have chosen experts since the stage was loaded.

        ProtocolError for rows that no stage with these layers and experts can have.
        """
        layers, now_s = tuple(layers), self._clock()
        for told in layers:
            self._check(told)
        if not self._past or now_s - self._past[-1][0] >= 1.0:
            self._past.append((now_s, {number: layer.of_ranks_R for number, layer in self._layers.items()}))
        while self._past[0][0] <= now_s - RECENT_S:
            self._past.popleft()
        for told in layers:
            if told.layer not in self._layers:
                self._layers[told.layer] = _Layer(self._first.get(told.layer), self._ranks(told.layer))
            if sum(told.rows) < self._layers[told.layer].told_N.sum():  # counts begin anew
                self._refused.pop(told.layer, None)
            self._layers[told.layer].count(told.rows)

    def candidate(self) -> Candidate | None:
        """The layer that is furthest from even, if any is worth a search."""
        open_ = [
            (layer.excess, number)
            for number, layer in self._layers.items()
            if layer.told_N.sum() >= self._refused.get(number, 0)
        ]
        excess, number = max(open_, default=(-math.inf, -1))
        if excess <= 0.0:
            return None
        layer = self._layers[number]
        assert layer.placement is not None, "only spread experts are judged"
        return Candidate(layer=number, placement=layer.placement, rows_N=layer.window_N.copy(), ranks=layer.ranks)

    def refused(self, layer: int) -> None:
        """Nothing better was found for a layer: it is left alone until as many rows again as judge it are counted."""
        own = self._layers[layer]
        self._refused[layer] = int(own.told_N.sum() + own.window_N.sum())

    def moved(self, layer: int, placement: ExpertPlacement) -> None:
        """The experts of a layer are placed so from now on; what is counted from now on judges them."""
        own = self._layers[layer]
        own.placement, own.window_N = placement, np.zeros_like(own.window_N)
        self.moves += 1

    def stats(self) -> ExpertStats | None:
        """What is told of it; None before anything was counted."""
        if not self._layers:
            return None
        numbers = sorted(self._layers)
        since_s = self._clock() - RECENT_S
        now = {number: layer.of_ranks_R for number, layer in self._layers.items()}
        past = next((rows for at_s, rows in self._past if at_s > since_s), now)
        return ExpertStats(
            stage=self._number,
            node=self._stage.node,
            sharing=self._stage.spec.experts if len(self._weights) > 1 else "",
            ranks=len(self._weights),
            moves=self.moves,
            busiest_over_mean=self._busiest_over_mean(numbers, past),
            busiest_over_mean_ever=self._busiest_over_mean(numbers, {}),
            layers=tuple(
                LayerExpertStats(
                    layer=number,
                    rows=tuple(self._layers[number].told_N.tolist()),
                    busiest_over_mean=self._busiest_over_mean([number], past),
                )
                for number in numbers
            ),
        )

    def _busiest_over_mean(self, numbers: Iterable[int], past: Mapping[int, Loads]) -> float:
        """Of the rows since `past`, layer by layer, as ranks wait for each other in each; 0 if there were none."""
        busiest = total = 0.0
        for number in numbers:
            layer = self._layers[number]
            before_R = past.get(number)
            rows_R = layer.of_ranks_R if before_R is None or not len(before_R) else layer.of_ranks_R - before_R
            rows = float(rows_R.sum())
            busiest += layer.ranks.busiest_over_mean(rows_R) * rows
            total += rows
        return busiest / total if total else 0.0

    def _checked(self, told: LayerPlacement) -> tuple[int, ExpertPlacement]:
        """A layer and where its experts are; ProtocolError for what cannot be."""
        try:
            placement = told.placement
            require(self._stage.has_layer(told.layer), f"layer {told.layer} is none of the stage's")
            placement.check(_count(placement), len(self._weights))
        except ValueError as error:
            raise self._wrong(f"where experts are, which cannot be: {error}") from error
        return told.layer, placement

    def _check(self, told: LayerRows) -> None:
        known = self._layers.get(told.layer)
        count = len(known.told_N) if known else len(told.rows)
        if (first := self._first.get(told.layer)) is not None:
            count = _count(first)
        if not self._stage.has_layer(told.layer) or len(told.rows) != count:
            raise self._wrong(f"rows of {len(told.rows)} experts in layer {told.layer}")

    def _wrong(self, what: str) -> ProtocolError:
        node = self._stage.node
        return ProtocolError(f"Node {node} told of {what}.", node=node, remedy="Restart it with this version.")

    def _ranks(self, layer: int) -> Ranks:
        first, total = self._first.get(layer), sum(self._weights)
        own = expert_ranges(_count(first), self._stage.spec.sharing) if first else [range(0)] * len(self._weights)
        return Ranks(
            rooms=tuple(len(each) + self._stage.spec.repeats for each in own),
            dues=tuple(weight / total for weight in self._weights),
            most_coming=MOST_COMING,
            on_device=self._stage.spec.device_experts if self._stage.spec.expert_device else None,
        )


def _count(placement: ExpertPlacement) -> int:
    """How many experts are placed."""
    return len(set().union(*placement.ranks))
