"""The turns of a chat, and what a line that somebody types means. Pure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from layerline.chat import Message

COMMANDS = ("/bye", "/clear", "/help")
HELP = """Each line is a turn of the conversation.
  Ctrl-C        stop the answer, and keep what came so far
  /clear        forget the conversation
  /help         show this
  /bye, Ctrl-D  end the chat"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """What was said so far. Every change makes a new one, so that a turn that failed can be forgotten."""

    turns: tuple[Message, ...] = ()

    @classmethod
    def begun(cls, system: str | None) -> Conversation:
        """One with nothing but instructions."""
        return cls(turns=() if system is None else (Message(role="system", content=system),))

    def with_turn(self, role: str, text: str) -> Conversation:
        """This and one turn more."""
        return Conversation(turns=(*self.turns, Message(role=role, content=text)))


def command_of(line: str) -> str:
    """The command that `line` is, or empty if it is something to say."""
    word = line.strip()
    return word if word.startswith("/") and " " not in word else ""


def unknown_command_sentence(command: str) -> str:
    """What to say of a command that there is not."""
    near = difflib.get_close_matches(command, COMMANDS, n=1)
    return f"There is no {command}. " + (f"Did you mean {near[0]}?" if near else "/help shows what there is.")
