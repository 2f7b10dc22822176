"""What is shown of announcements, on a terminal and into a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from layerline.cli.load_screen import LoadScreen
from layerline.reports import Announcement

LOOKING, WAITING = Announcement(text="Looking for nodes."), Announcement(text="Waiting for b.")


@pytest.mark.parametrize(
    ("terminal", "quiet", "shown"),
    [
        (False, False, ["Waiting for b."]),
        (True, False, ["Looking for nodes.", "Waiting for b."]),
        (False, True, []),
        (True, True, []),
    ],
)
def test_whom_it_waits_for_is_told_into_a_file_too(terminal: bool, quiet: bool, shown: list[str]) -> None:
    file = io.StringIO()
    with LoadScreen(Console(file=file, force_terminal=terminal, no_color=True), quiet=quiet) as screen:
        screen.show(LOOKING)
        screen.show(WAITING)
    assert [text for text in ("Looking for nodes.", "Waiting for b.") if text in file.getvalue()] == shown
