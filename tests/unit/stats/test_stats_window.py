"""A minute is a minute: what is older counts only for all the time."""

from __future__ import annotations

import pytest

from coordinator.stats.tally import Tally
from coordinator.stats.window import WINDOW_S, Window


def filled(began_s: float, until_s: int) -> Window:
    """A window that got a token each second, and 10 ms of a step."""
    window = Window(2, began_s)
    for second in range(int(began_s), until_s):
        tally = window.now(second + 0.5)
        tally.tokens += 1
        tally.steps.add(10_000)
        tally.stages[1].computing.add(5_000)
        tally.links[2].frames += 1
    return window


def counts(tally: Tally) -> tuple[int, int, int, int]:
    return tally.tokens, tally.steps.count, tally.stages[1].computing.count, tally.links[2].frames


@pytest.mark.parametrize(
    ("until_s", "asked_s", "in_window", "period_s"),
    [
        (10, 10.25, 10, 10.25),
        (60, 60.0, 59, 59.0),  # the second that has just begun counts as one of the sixty
        (200, 199.75, WINDOW_S, 59.75),
        (200, 229.5, 30, 59.5),
        (200, 1000.0, 0, 59.0),
    ],
)
def test_recent_is_the_last_minute_and_total_all(until_s: int, asked_s: float, in_window: int, period_s: float) -> None:
    window = filled(0.0, until_s)
    recent, recent_s = window.recent(asked_s)
    total, total_s = window.total(asked_s)
    assert counts(recent) == (in_window,) * 4
    assert counts(total) == (until_s,) * 4
    assert (recent_s, total_s) == (period_s, asked_s)


def test_what_is_asked_changes_nothing() -> None:
    window = filled(0.0, 100)
    assert [counts(window.total(99.9)[0]), counts(window.recent(99.9)[0])] == [(100,) * 4, (60,) * 4]
    assert [counts(window.total(99.9)[0]), counts(window.recent(99.9)[0])] == [(100,) * 4, (60,) * 4]
