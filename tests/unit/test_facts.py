"""What a node says of itself is checked before anything is planned with it."""

from __future__ import annotations

import pytest

from layerline.facts import DeviceFacts, NodeFacts
from layerline.plan import MAX_DEVICES


def device(name: str, **speeds: float) -> DeviceFacts:
    return DeviceFacts(device=name, kind="cuda", name="GPU", total_bytes=4, free_bytes=3, budget_bytes=2, **speeds)


def node(*devices: DeviceFacts) -> NodeFacts:
    return NodeFacts(node_id="1", name="a", version="0", wire_version=1, state="ready", devices=devices)


def test_a_device_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice"):
        node(device("cuda:0"), device("cuda:0"))


def test_more_devices_than_a_stage_may_span_are_refused() -> None:
    assert len(node(*(device(f"cuda:{place}") for place in range(MAX_DEVICES))).devices) == MAX_DEVICES
    with pytest.raises(ValueError, match="more than 64"):
        node(*(device(f"cuda:{place}") for place in range(MAX_DEVICES + 1)))


@pytest.mark.parametrize("speed", [-1.0, 1e-300, 0.5, 1e18, float("inf"), float("nan")])
def test_a_speed_that_cannot_be_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="no sensible number"):
        device("cuda:0", memory_bytes_per_s=speed)
    with pytest.raises(ValueError, match="no sensible number"):
        device("cuda:0", matrix_flops_per_s=speed)
