"""What a benchmark measured: rows for people and programs, and the ratios that the project is held to."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """The figures of one case on one cluster. `figures` have their unit in their name."""

    case: str
    model: str
    nodes: int
    streams: int = 0  # answers at the same time; 0 where none was asked for
    figures: dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What one case found. `ratios` are of measurements taken in turn, so that they hold on any machine.

    Beside them is `allreduce_us`, a time that the project is held to as well.
    """

    rows: tuple[Row, ...]
    ratios: dict[str, float] = field(default_factory=dict)
