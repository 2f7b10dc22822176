"""How long a coordinator waits for the nodes that it holds."""

from __future__ import annotations

from dataclasses import dataclass

from layerline.hold import HEARTBEATS, Heartbeats


@dataclass(frozen=True, kw_only=True, slots=True)
class HoldDeadlines:
    """How long a coordinator waits for what a node it holds has to do."""

    welcome_s: float = 6.0
    load_silence_s: float = 120.0  # a load may take long, but not without any progress
    bind_s: float = 30.0
    unload_s: float = 15.0
    move_s: float = 180.0  # of the experts of a layer: twice what a node gives its ranks, since it tells how that went
    heartbeats: Heartbeats = HEARTBEATS


HOLD_DEADLINES = HoldDeadlines()
