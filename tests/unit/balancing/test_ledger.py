"""What is known of a stage's experts: counted rows, how even ranks are, and which layer is worth a move."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.balancing.balancer import Balancer
from coordinator.balancing.ledger import ExpertLedger
from layerline.errors import ProtocolError, StageFailedError
from layerline.hold import LayerPlacement, LayerRows, RankExperts
from layerline.models.expert_placement import ExpertPlacement
from layerline.plan import StagePlan, StageSpec
from tests.fakes.booked_pipeline import HandClock

FIRST = ExpertPlacement(((0, 1), (2, 3)))
SKEWED, EVEN = (900, 800, 100, 200), (500, 500, 500, 500)


def stage(**changes: Any) -> StagePlan:
    fields: dict[str, Any] = {"devices": ("cpu:0", "cpu:1"), "experts": "spread", "repeats": 1}
    spec = StageSpec(
        model="m",
        digest="d",
        first_layer=0,
        last_layer=3,
        dtype="float32",
        pages=8,
        page_tokens=16,
        max_rows=8,
        **{**fields, **changes},
    )
    return StagePlan(
        node_id="a",
        node="a",
        spec=spec,
        weights_bytes=1,
        kv_bytes=1,
        workspace_bytes=1,
        budget_bytes=9,
        has_experts=True,
    )


def ledger_of(clock: HandClock | None = None, **changes: Any) -> ExpertLedger:
    placements = [LayerPlacement.of(layer, FIRST) for layer in (1, 2)] if changes.get("experts") != "split" else []
    return ExpertLedger(0, stage(**changes), placements, clock or HandClock())


def told(layer: int, rows: tuple[int, ...], times: int = 1) -> list[LayerRows]:
    return [LayerRows(layer=layer, rows=tuple(times * each for each in rows))]


def test_the_layer_that_is_furthest_from_even_is_looked_at_first() -> None:
    ledger = ledger_of()
    assert ledger.candidate() is None
    ledger.counted([*told(1, (600, 600, 400, 400)), *told(2, SKEWED)])
    candidate = ledger.candidate()
    assert candidate is not None
    assert candidate.layer == 2
    better = candidate.better()
    assert better is not None
    ledger.moved(2, better)
    assert (other := ledger.candidate()) is not None
    assert other.layer == 1
    ledger.refused(1)
    assert ledger.candidate() is None
    ledger.counted(told(1, (900, 900, 600, 600)))  # half as much again
    assert ledger.candidate() is None
    ledger.counted(told(1, (1200, 1200, 800, 800)))
    assert (again := ledger.candidate()) is not None
    assert again.layer == 1
    ledger.refused(1)
    ledger.counted(told(1, (600, 600, 400, 400)))  # counts begin anew, and so does the search
    assert ledger.candidate() is not None


def test_a_few_rows_prove_nothing() -> None:
    ledger = ledger_of()
    ledger.counted(told(1, (9, 8, 1, 2)))
    assert ledger.candidate() is None


def test_what_is_told_is_since_the_stage_was_loaded() -> None:
    clock = HandClock()
    ledger = ledger_of(clock)
    ledger.counted(told(1, SKEWED))
    clock.now_s += 100.0
    ledger.counted(told(1, SKEWED))
    clock.now_s += 1.0
    ledger.counted(told(1, tuple(a + b for a, b in zip(SKEWED, EVEN, strict=True))))
    stats = ledger.stats()
    assert stats is not None
    assert (stats.sharing, stats.ranks, stats.moves) == ("spread", 2, 0)
    assert stats.layers[0].rows == (1400, 1300, 600, 700)
    assert stats.busiest_over_mean == pytest.approx(1.0)  # of the last minute
    assert stats.busiest_over_mean_ever == pytest.approx((1700 + 1000) / 2000)
    clock.now_s += 100.0
    idle = ledger.stats()
    assert idle is not None
    assert idle.busiest_over_mean == 0.0


def test_moved_experts_change_what_ranks_have_from_then_on() -> None:
    ledger = ledger_of()
    ledger.counted(told(1, SKEWED))
    ledger.moved(1, ExpertPlacement(((0, 2), (1, 3))))
    ledger.counted(told(1, SKEWED, 2))
    stats = ledger.stats()
    assert stats is not None
    assert stats.moves == 1
    assert stats.busiest_over_mean_ever == pytest.approx((1700 + 1000) / 2000)


def test_split_experts_are_counted_and_never_moved() -> None:
    ledger = ledger_of(experts="split", repeats=0)
    ledger.counted(told(1, SKEWED))
    assert ledger.candidate() is None
    assert not ledger.are_spread
    stats = ledger.stats()
    assert stats is not None
    assert stats.sharing == "split"
    assert stats.busiest_over_mean == pytest.approx(1.0)


def test_a_node_whose_counts_begin_anew_is_believed() -> None:
    ledger = ledger_of()
    ledger.counted(told(1, SKEWED, 3))
    ledger.counted(told(1, EVEN))
    stats = ledger.stats()
    assert stats is not None
    assert stats.layers[0].rows == EVEN


def test_a_stage_that_was_moved_by_another_coordinator_has_the_rooms_that_it_was_loaded_with() -> None:
    moved = LayerPlacement.of(1, ExpertPlacement(((0, 1, 2), (3,))))
    ledger = ExpertLedger(0, stage(), [moved], HandClock())
    ledger.counted(told(1, (9000, 8000, 100, 200)))
    candidate = ledger.candidate()
    assert candidate is not None
    assert candidate.ranks.rooms == (3, 3)


@pytest.mark.parametrize(
    "placement",
    [
        LayerPlacement.of(9, FIRST),
        LayerPlacement.of(1, ExpertPlacement(((0, 1, 2, 3),))),
        LayerPlacement.of(1, ExpertPlacement(((0, 1), (2, 4000)))),
        LayerPlacement(layer=1, ranks=(RankExperts((0, 0)), RankExperts((1,)))),
    ],
)
def test_a_node_that_tells_of_experts_that_cannot_be_is_named(placement: LayerPlacement) -> None:
    with pytest.raises(ProtocolError, match="Node a told of where experts are, which cannot be"):
        ExpertLedger(0, stage(), [placement])


@pytest.mark.parametrize(("layer", "rows"), [(9, EVEN), (1, (1, 2, 3)), (1, (1,) * 4000)])
def test_a_node_that_tells_of_rows_that_cannot_be_is_named(layer: int, rows: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError, match=f"Node a told of rows of {len(rows)} experts in layer {layer}"):
        ledger_of().counted(told(layer, rows))


@pytest.mark.parametrize("rows", [(1, -1), (1 << 62,), ()])
def test_rows_are_counts(rows: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rows"):
        LayerRows(layer=1, rows=rows)


class FakeHold:
    def __init__(self, *failures: StageFailedError | None) -> None:
        self.moves: list[tuple[int, LayerPlacement]] = []
        self.failures = list(failures)
        self.asked = asyncio.Event()

    async def move_experts(self, stage: int, placement: LayerPlacement) -> None:
        self.asked.set()
        failure = self.failures.pop(0) if self.failures else None
        if failure:
            raise failure
        self.moves.append((stage, placement))


async def test_layers_are_moved_one_after_the_other_until_nothing_is_worth_it() -> None:
    hold, ledger = FakeHold(), ledger_of()
    balancer = Balancer(hold, 3, ledger)
    balancing = asyncio.create_task(balancer.run())
    balancer.counted([*told(1, SKEWED), *told(2, SKEWED)])
    async with asyncio.timeout(20.0):
        while ledger.moves < 2:
            await hold.asked.wait()
            hold.asked.clear()
            await asyncio.sleep(0)
    assert sorted(placement.layer for _, placement in hold.moves) == [1, 2]
    assert {stage for stage, _ in hold.moves} == {3}
    balancing.cancel()


async def test_a_move_that_fails_costs_a_pause_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    hold, ledger = FakeHold(StageFailedError("no memory", node="a")), ledger_of()
    balancer = Balancer(hold, 1, ledger, pauses_s=(0.01,))
    balancing = asyncio.create_task(balancer.run())
    balancer.counted(told(1, SKEWED))
    async with asyncio.timeout(20.0):
        await hold.asked.wait()
        hold.asked.clear()
        balancer.counted(told(1, SKEWED))
        await hold.asked.wait()
    assert "Experts stay where they are" in caplog.text
    balancing.cancel()


async def test_a_stage_whose_experts_are_not_spread_needs_no_balancer() -> None:
    await Balancer(FakeHold(), 1, ledger_of(experts="split", repeats=0)).run()
