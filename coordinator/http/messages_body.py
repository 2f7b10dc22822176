"""The body of POST /v1/messages, and the request that it becomes. Source: Anthropic's API reference, Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from coordinator.http.bodies import Body, refusal, refused_by_nouns
from coordinator.http.chat_body import variables_text
from coordinator.http.failures import HttpError
from coordinator.http.sampling_body import DrawnBody, Effort
from coordinator.http.tool_rules import check_types, rules_of, tool_of
from layerline.chat import Message, ToolCall, ToolRules
from layerline.requests import GenerateRequest, Structure

IGNORED = frozenset({"metadata", "service_tier", "cache_control", "inference_geo", "context_management"})
"""Fields of Anthropic's API that mean nothing to a local model."""

TEXT = "text"
LEFT_OUT = ("redacted_thinking",)


class ContentBlock(Body):
    """A block of a turn's content, of any type; `cache_control`, `citations` and `signature` say nothing here."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[ContentBlock] | None = None
    is_error: bool | None = None
    source: Any = None
    title: str | None = None
    context: str | None = None
    cache_control: Any = None
    citations: Any = None
    caller: Any = None


class Turn(Body):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentBlock]


class MessagesTool(Body):
    """A tool that the model may call; there are none that the server runs itself."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None
    cache_control: Any = None
    input_examples: Any = None
    eager_input_streaming: bool | None = None
    defer_loading: bool | None = None
    allowed_callers: list[str] | None = None


class Choice(Body):
    """Whether tools are to be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """Whether the model is to think first. No budget can be held to: thoughts end where the model ends them."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: str | None = None


class OutputFormat(Body):
    """What an answer is to look like."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """How hard the model is to think, and the form of its answer."""

    effort: Effort | None = None
    format: OutputFormat | None = None


class CountBody(DrawnBody):
    """What makes up a prompt: all that may be asked for but the length of the answer."""

    messages: list[Turn]
    system: str | list[ContentBlock] | None = None
    stop_sequences: list[str] | None = None
    tools: list[MessagesTool] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def request(self, max_tokens: int = 0) -> GenerateRequest:
        """The request that it is; HttpError for what cannot be."""
        if not self.messages:
            raise HttpError(400, "messages is empty.", param="messages")
        if self.messages[-1].role == "assistant":
            message = "The last of messages is the assistant's: layerline cannot go on from within a turn."
            raise refusal("messages", message)
        config = self.output_config or OutputConfig()
        form = config.format or self.output_format
        with refused_by_nouns({"stop": "stop_sequences"}):
            return GenerateRequest(
                **self.drawn(self.stop_sequences or ()),
                messages=(*_system(self.system), *_messages(self.messages)),
                max_tokens=max_tokens,
                structure=Structure(kind="json_schema", text=json.dumps(form.schema_)) if form else None,
                tools=_rules(self.tools, self.tool_choice),
                template_variables=variables_text(self._variables(), config.effort),
            )

    def _variables(self) -> dict[str, Any]:
        """What the template is told: a model thinks where the request says so, as in Anthropic's API."""
        thinks = self.thinking is not None and self.thinking.type != "disabled"
        return {"enable_thinking": thinks, **(self.chat_template_kwargs or {})}


class MessagesBody(CountBody):
    """All that a message may ask for."""

    max_tokens: int

    def asked(self) -> GenerateRequest:
        """The request that it is; HttpError for what cannot be."""
        if self.max_tokens < 1:
            raise HttpError(400, "max_tokens must be at least 1.", param="max_tokens")
        return self.request(self.max_tokens)


def _system(given: str | Sequence[ContentBlock] | None) -> Iterator[Message]:
    if given:
        yield Message(role="system", content=_text("system", given))


def _messages(turns: Sequence[Turn]) -> Iterator[Message]:
    names: dict[str, str] = {}  # of the tools called, by the ids of the calls
    for index, turn in enumerate(turns):
        place = f"messages[{index}].content"
        if turn.role == "assistant":
            message = _said(place, turn.content)
            names |= {call.id: call.name for call in message.tool_calls}
            yield message
        elif isinstance(turn.content, str):
            yield Message(role=turn.role, content=turn.content)
        else:
            if not turn.content:
                raise HttpError(400, f"{place} is empty.", param=place)
            yield from _asked(place, turn.role, turn.content, names)


def _asked(place: str, role: str, blocks: Sequence[ContentBlock], names: Mapping[str, str]) -> Iterator[Message]:
    """The results of tools, each a turn of its own, and the text between and after them."""
    texts: list[ContentBlock] = []
    for index, block in enumerate(blocks):
        if block.type != "tool_result":
            texts.append(block)
            continue
        if texts:
            yield Message(role=role, content=_text(place, texts))
            texts = []
        result = _text(f"{place}[{index}].content", block.content or "")
        id_ = block.tool_use_id or ""
        content = result or ("error" if block.is_error else "")
        yield Message(role="tool", content=content, tool_call_id=id_, name=names.get(id_, ""))
    if texts:
        yield Message(role=role, content=_text(place, texts))


def _said(place: str, content: str | Sequence[ContentBlock]) -> Message:
    if isinstance(content, str):
        return Message(role="assistant", content=content)
    calls = tuple(
        ToolCall(id=block.id or "", name=block.name or "", arguments=json.dumps(block.input or {}, ensure_ascii=False))
        for block in content
        if block.type == "tool_use"
    )
    thought = "".join(block.thinking or "" for block in content if block.type == "thinking")
    texts = [block for block in content if block.type not in ("tool_use", "thinking", *LEFT_OUT)]
    return Message(role="assistant", content=_text(place, texts), thinking=thought, tool_calls=calls)


def _text(place: str, content: str | Sequence[ContentBlock]) -> str:
    """The text of blocks, which are joined."""
    if isinstance(content, str):
        return content
    for index, block in enumerate(content):
        if block.type != TEXT:
            raise refusal(f"{place}[{index}].type", f"This model reads text alone, and not {block.type[:40]!r}.")
        if block.text is None:
            raise HttpError(400, f"{place}[{index}].text is missing.", param=f"{place}[{index}].text")
    return "".join(block.text or "" for block in content)


def _rules(tools: Sequence[MessagesTool] | None, choice: Choice | None) -> ToolRules | None:
    given, choice = tools or (), choice or Choice(type="auto")
    if choice.type == "tool" and not choice.name:
        raise HttpError(400, "tool_choice.name is missing.", param="tool_choice")
    check_types([tool.type for tool in given], "custom")
    return rules_of(
        [tool_of(tool.name, tool.description, tool.input_schema, strict=tool.strict) for tool in given],
        {"any": "required", "tool": "required"}.get(choice.type, choice.type),
        only=(choice.name or "") if choice.type == "tool" else "",
        parallel=not choice.disable_parallel_tool_use,
    )
