"""What is shown while a model is made ready, and how an answer reaches a terminal or a pipe."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

import pytest
from rich.console import Console

from layerline.answer import Piece
from layerline.cli.load_screen import LoadScreen
from layerline.cli.output import AnswerWriter
from layerline.reports import Announcement, PrepareEvent
from tests.fakes.coordinator_service import PREPARING

NASTY = "\x1b]0;title\x07red\x9b31m\ttab\n"


def shown(events: tuple[PrepareEvent, ...], *, terminal: bool, quiet: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, markup=False)
    with LoadScreen(console, quiet=quiet) as screen:
        for event in events:
            screen.show(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_bars_for_every_node() -> None:
    text = shown(PREPARING, terminal=True)
    assert "Looking at the nodes." in text
    assert "attic loads" in text
    assert "cellar loads" in text
    assert "10/20 bytes" in text


def test_elsewhere_only_the_plan_is_shown_and_once() -> None:
    lines = shown(PREPARING, terminal=False).splitlines()
    assert [line.split()[0] for line in lines] == ["tiny:", "attic", "cellar"]


def test_a_plan_that_is_in_effect_already_is_shown_when_it_is_ready() -> None:
    assert "attic" in shown(PREPARING[-1:], terminal=False)


def test_quiet_is_quiet() -> None:
    assert shown(PREPARING, terminal=True, quiet=True) == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_model_cannot_command_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    writer = AnswerWriter()
    writer.write(NASTY)
    assert writer.text == NASTY
    assert terminal.getvalue() == "�]0;title�red�31m\ttab\n"


def test_a_pipe_gets_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    AnswerWriter().write(NASTY)
    assert capsys.readouterr().out == NASTY


async def test_an_answer_that_breaks_off_still_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken() -> AsyncIterator[Piece]:
        yield Piece(text="so far", token_ids=(1,))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await AnswerWriter().write_stream(broken())
    assert capsys.readouterr().out == "so far\n"


def test_what_is_announced_loses_its_control_characters() -> None:
    text = shown((Announcement(text=NASTY),), terminal=True)
    assert r"title\x07red\x9b31m\ttab\n" in text
    assert "\x1b]" not in text
