"""A chat as a client gives it: turns, the tools that the model may call, and the calls that it made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layerline.checks import require, require_one_of

ROLES = ("system", "developer", "user", "assistant", "tool")
TOOL_CHOICES = ("auto", "none", "required")
MAX_TOOLS = 128

ToolChoice = Literal["auto", "none", "required"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call that an assistant made. `arguments` is JSON text, which a model may have got wrong."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn of a chat.

    `thinking` and `tool_calls` are an assistant's; `tool_call_id` says which call a tool's turn answers.
    """

    role: str
    content: str = ""
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.role, ROLES, "role")
        require(not self.tool_calls or self.role == "assistant", "only an assistant's turn has tool_calls")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments, as text.

    The arguments of a `strict` tool are held to the schema as they are drawn.
    """

    name: str
    description: str = ""
    parameters: str = "{}"
    strict: bool = False

    def __post_init__(self) -> None:
        require(bool(self.name), "a tool needs a name")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRules:
    """The tools of a chat and how they may be called.

    With choice "required" at least one call is made, of the tool `only` if that is not empty. `format` is how the model
    writes calls; empty: as its template teaches.
    """

    tools: tuple[Tool, ...]
    choice: str = "auto"
    only: str = ""
    parallel: bool = True
    format: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.choice, TOOL_CHOICES, "choice")
        require(0 < len(self.tools) <= MAX_TOOLS, f"a chat has from 1 to {MAX_TOOLS} tools, or no rules for them")
        names = [tool.name for tool in self.tools]
        require(len(set(names)) == len(names), "two tools have one name")
        require(
            not self.only or (self.choice == "required" and self.only in names), "only names no tool that is required"
        )
