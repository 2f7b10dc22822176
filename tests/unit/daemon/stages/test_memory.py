"""A stage fits if each rank's own share does on its own device."""

from __future__ import annotations

import dataclasses

import pytest

from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import DeviceFacts
from layerline.plan import StageSpec
from node.daemon.stages.memory import check_memory_fits, device_bytes
from tests.fakes.cards import model_card
from tests.fakes.daemon_parts import cpu_facts, model_spec, stage_spec

MODEL = model_card(model_spec())
WHOLE = stage_spec(last_layer=3)
HALVES = dataclasses.replace(WHOLE, devices=("cpu:0", "cpu:1"))


def devices(*budget_bytes: int) -> list[DeviceFacts]:
    return [cpu_facts(budget, f"cpu:{rank}") for rank, budget in enumerate(budget_bytes)]


def needed(spec: StageSpec) -> list[int]:
    return [taken.needed for taken in device_bytes(spec, MODEL).values()]


def test_ranks_hold_together_what_one_device_would() -> None:
    whole, halves = device_bytes(WHOLE, MODEL), device_bytes(HALVES, MODEL)
    norms_bytes = 2 * MODEL.spec.hidden * (2 * MODEL.spec.layers + 1)  # every rank has them
    assert list(halves) == ["cpu:0", "cpu:1"]
    assert sum(taken.held for taken in halves.values()) == whole["cpu"].held + norms_bytes


def test_each_rank_must_fit_its_own_device() -> None:
    first, second = needed(HALVES)
    check_memory_fits(HALVES, MODEL, devices(first, second), "kitchen")
    with pytest.raises(PlanDoesNotFitError, match=r"on cpu:1 of node kitchen, where .* are available"):
        check_memory_fits(HALVES, MODEL, devices(first, second - 1), "kitchen")


def test_unlike_shares_need_unlike_memory() -> None:
    uneven = dataclasses.replace(HALVES, proportions=(3, 1))
    first, second = needed(uneven)
    assert first > second
    check_memory_fits(uneven, MODEL, devices(first, second), "kitchen")
    with pytest.raises(PlanDoesNotFitError, match="cpu:0"):
        check_memory_fits(uneven, MODEL, devices(second, first), "kitchen")


def test_a_device_that_is_not_there_and_a_model_that_cannot_be_split_so_are_invalid() -> None:
    with pytest.raises(PlanInvalidError, match="no device cpu:1, only cpu:0"):
        check_memory_fits(HALVES, MODEL, devices(1 << 30), "kitchen")
    many = dataclasses.replace(WHOLE, devices=tuple(f"cpu:{rank}" for rank in range(5)))
    with pytest.raises(PlanInvalidError, match="4 attention heads cannot be split over 5 devices"):
        check_memory_fits(many, MODEL, devices(*[1 << 30] * 5), "kitchen")
