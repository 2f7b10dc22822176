"""`layerline chat` against a coordinator on loopback, through a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from layerline.chat import Message
from layerline.cli.main import program
from layerline.errors import PromptTooLongError
from tests.fakes.coordinator_service import ANSWER, FakeCoordinator, Hang, serving

WAIT_S = 20


@pytest.fixture
def fake() -> FakeCoordinator:
    return FakeCoordinator()


@pytest.fixture
def address(fake: FakeCoordinator) -> Iterator[str]:
    with serving(fake) as address:
        yield address


def chat(address: str, lines: str, *arguments: str) -> Result:
    return CliRunner().invoke(program, ["chat", "--model", "tiny", "--coordinator", address, *arguments], input=lines)


def turns(*texts: str) -> tuple[Message, ...]:
    roles = ("user", "assistant") * len(texts)
    return tuple(Message(role=role, content=text) for role, text in zip(roles, texts, strict=False))


def test_each_line_is_a_turn_and_the_model_sees_all_of_them(address: str, fake: FakeCoordinator) -> None:
    result = chat(address, "One\n\nTwo")
    assert (result.exit_code, result.stdout) == (0, "Paris.\nParis.\n")
    assert [asked.messages for asked in fake.asked] == [turns("One"), turns("One", "Paris.", "Two")]


def test_clear_forgets_the_turns_but_not_the_instructions(address: str, fake: FakeCoordinator) -> None:
    chat(address, "One\n/clear\nTwo\n/bye\nThree\n", "--system", "S")
    system = Message(role="system", content="S")
    assert [asked.messages for asked in fake.asked] == [(system, *turns("One")), (system, *turns("Two"))]


def test_help_and_unknown_commands_are_told_and_not_said(address: str, fake: FakeCoordinator) -> None:
    result = chat(address, "/help\n/clea\n")
    assert "forget the conversation" in result.stderr
    assert "There is no /clea. Did you mean /clear?" in result.stderr
    assert fake.asked == []


def test_a_failed_turn_through_a_pipe_ends_the_chat(address: str, fake: FakeCoordinator) -> None:
    fake.answers = [(PromptTooLongError("The prompt has 9 tokens, the context 8."),)]
    result = chat(address, "One\nTwo\n")
    assert result.exit_code == 7
    assert len(fake.asked) == 1


# A session's leader that opens a terminal takes it for its own, so that Ctrl-C typed there is a signal.
CHAT_ON_OWN_TERMINAL = """
import os
os.close(os.open(os.ttyname(0), os.O_RDWR))
from layerline.cli.main import main
main()
"""


class Terminal:
    """A chat on a pseudo terminal."""

    def __init__(self, address: str) -> None:
        self._end, inner = pty.openpty()
        command = [sys.executable, "-c", CHAT_ON_OWN_TERMINAL, "chat", "--model", "tiny", "--coordinator", address]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "TERM": "dumb"}
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=environment, start_new_session=True
        )
        os.close(inner)
        self.shown = ""

    def wait_for(self, pattern: str) -> None:
        """Reads what is shown until it has `pattern`, which is then passed."""
        assert self._shows(pattern, WAIT_S), f"no {pattern!r} in {self.shown!r}"
        match = re.search(pattern, self.shown)
        assert match
        self.shown = self.shown[match.end() :]

    def _shows(self, pattern: str, within_s: float) -> bool:
        deadline_s = time.monotonic() + within_s
        while not re.search(pattern, self.shown):
            readable, _, _ = select.select([self._end], [], [], max(0.0, deadline_s - time.monotonic()))
            if not readable:
                return False
            self.shown += os.read(self._end, 4096).decode()
        return True

    def press_until(self, key: str, pattern: str) -> None:
        """Presses `key` until `pattern` is shown: a signal just before the line is read is lost, as in any program."""
        for _ in range(WAIT_S // 2):
            self.type(key)
            if self._shows(pattern, 2.0):
                break
        self.wait_for(pattern)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        os.close(self._end)


@pytest.fixture
def terminal(address: str) -> Iterator[Terminal]:
    terminal = Terminal(address)
    yield terminal
    terminal.close()


CTRL_C, CTRL_D = "\x03", "\x04"


@pytest.mark.system
def test_ctrl_c_stops_the_answer_and_not_the_chat(terminal: Terminal, fake: FakeCoordinator) -> None:
    fake.answers = [(ANSWER[0], Hang()), ANSWER]
    terminal.wait_for(">>> ")
    terminal.type("One\n")
    fake.hung.get(timeout=WAIT_S)
    terminal.wait_for("Par")
    terminal.type(CTRL_C)
    terminal.wait_for(r"\(stopped\)[\s\S]*>>> ")
    assert fake.cancelled.get(timeout=WAIT_S) == "cancelled"
    terminal.type("Two\n")
    terminal.wait_for(r"Paris\.[\s\S]*>>> ")
    assert fake.asked[1].messages == turns("One", "Par", "Two")
    terminal.press_until(CTRL_C, r"/bye ends the chat[\s\S]*>>> ")
    terminal.type(CTRL_D)
    assert terminal.process.wait(WAIT_S) == 0


@pytest.mark.system
def test_a_refused_turn_is_told_and_forgotten(terminal: Terminal, fake: FakeCoordinator) -> None:
    fake.answers = [(PromptTooLongError("The prompt has 9 tokens, the context 8."),), ANSWER]
    terminal.wait_for(">>> ")
    terminal.type("Long\n")
    terminal.wait_for(r"the context 8\. /clear forgets the conversation\.[\s\S]*>>> ")
    terminal.type("Short\n")
    terminal.wait_for(r"Paris\.[\s\S]*>>> ")
    assert fake.asked[1].messages == turns("Short")
    terminal.type("/bye\n")
    assert terminal.process.wait(WAIT_S) == 0
