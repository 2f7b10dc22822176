"""The body of POST /v1/responses, and the chat that it becomes. Source: OpenAI's API reference, Responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from coordinator.http.bodies import Body, refusal, refused_by_nouns
from coordinator.http.chat_body import variables_text
from coordinator.http.failures import HttpError
from coordinator.http.sampling_body import DrawnBody, Effort, StreamOptions
from coordinator.http.tool_rules import check_types, rules_of, tool_of
from layerline.chat import Message, ToolCall, ToolRules
from layerline.requests import GenerateRequest, Structure

IGNORED = frozenset(
    {
        *("user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("max_tool_calls", "context_management"),
    }
)
"""Fields of OpenAI's API that mean nothing to a local model."""

INCLUDED = ("message.output_text.logprobs", "reasoning.encrypted_content")
TEXT_TYPES = ("input_text", "output_text", "text", "refusal", "summary_text", "reasoning_text")


class ItemPart(Body):
    """A part of an item's content; only text can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None
    annotations: Any = None
    logprobs: Any = None
    image_url: Any = None
    file_id: Any = None
    file_data: Any = None
    file_url: Any = None
    filename: Any = None
    detail: Any = None
    input_audio: Any = None


class InputItem(Body):
    """A turn, a call, the result of one, or a thought, as items of an answer come back."""

    type: str = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[ItemPart] | None = None
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    output: str | list[ItemPart] | None = None
    summary: list[ItemPart] | None = None
    encrypted_content: str | None = None


class ResponsesTool(Body):
    """A tool; there are none but functions."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(Body):
    """The tool that is to be called."""

    type: Literal["function"]
    name: str


class TextFormat(Body):
    """What an answer is to look like; `regex` and `grammar` are layerline's own."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None
    regex: str | None = None
    grammar: str | None = None


class TextOptions(Body):
    """The form of an answer's text."""

    format: TextFormat | None = None
    verbosity: str | None = None


class Reasoning(Body):
    """How hard the model is to think; thoughts are told as they are, and never summed up."""

    effort: Effort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesBody(DrawnBody):
    """All that a response may ask for."""

    input: str | list[InputItem]
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    tools: list[ResponsesTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    background: bool | None = None
    metadata: dict[str, str] | None = None

    def turns(self) -> tuple[Message, ...]:
        """The turns of its input; HttpError for what cannot be one."""
        with refused_by_nouns():
            if isinstance(self.input, str):
                return (Message(role="user", content=self.input),)
            return tuple(_turns(self.input))

    def request(self, before: tuple[Message, ...]) -> GenerateRequest:
        """The request that it is, after the turns of a response before it; HttpError for what cannot be."""
        self._check()
        instructions = [Message(role="system", content=self.instructions)] if self.instructions else []
        turns = (*instructions, *before, *self.turns())
        if not turns:
            raise HttpError(400, "input is empty.", param="input")
        reasoning = self.reasoning or Reasoning()
        with refused_by_nouns({"log_probabilities": "top_logprobs", "max_tokens": "max_output_tokens"}):
            return GenerateRequest(
                **self.drawn(),
                messages=turns,
                max_tokens=self.max_output_tokens or 0,
                log_probabilities=(self.top_logprobs or 0) if self.tells_likelihoods else None,
                structure=_structure(self.text.format if self.text else None),
                tools=_rules(self.tools, self.tool_choice, parallel=self.parallel_tool_calls is not False),
                template_variables=variables_text(self.chat_template_kwargs, reasoning.effort),
            )

    @property
    def tells_likelihoods(self) -> bool:
        """Whether log-probabilities are wanted."""
        return bool(self.top_logprobs) or INCLUDED[0] in (self.include or ())

    def _check(self) -> None:
        if self.background:
            raise refusal("background", "layerline answers while the client waits, and not in the background.")
        if self.truncation == "auto":
            raise refusal("truncation", "layerline drops no turns of a chat; truncation must be disabled.")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise HttpError(400, "max_output_tokens must be at least 1.", param="max_output_tokens")
        for name in self.include or ():
            if name not in INCLUDED:
                raise refusal("include", f"layerline cannot include {name[:60]!r}.")


def _turns(items: Sequence[InputItem]) -> Iterator[Message]:
    """The chat that items are: what an assistant thought, said and called, one after the other, is one turn."""
    own: list[InputItem] = []
    for index, item in enumerate(items):
        place = f"input[{index}]"
        if item.type in ("reasoning", "function_call") or (item.type == "message" and item.role == "assistant"):
            if own and item.type != "function_call" and _has_called(own):
                yield _assistant(own)
                own = []
            own.append(item)
            continue
        if own:
            yield _assistant(own)
            own = []
        if item.type == "message" and item.role:
            yield Message(role=item.role, content=part_text(f"{place}.content", item.content))
        elif item.type == "function_call_output":
            output = part_text(f"{place}.output", item.output)
            yield Message(role="tool", content=output, tool_call_id=item.call_id or "")
        elif item.type == "message":
            raise HttpError(400, f"{place}.role is missing.", param=f"{place}.role")
        else:
            raise refusal(f"{place}.type", f"layerline does not know items of type {item.type[:40]!r}.")
    if own:
        yield _assistant(own)


def _has_called(items: Sequence[InputItem]) -> bool:
    return any(item.type == "function_call" for item in items)


def _assistant(items: Sequence[InputItem]) -> Message:
    thoughts = [
        part for item in items if item.type == "reasoning" for part in _parts(item.content) or item.summary or ()
    ]
    said = [part_text("input", item.content) for item in items if item.type == "message"]
    calls = tuple(
        ToolCall(id=item.call_id or "", name=item.name or "", arguments=item.arguments or "{}")
        for item in items
        if item.type == "function_call"
    )
    return Message(role="assistant", content="".join(said), thinking=part_text("input", thoughts), tool_calls=calls)


def _parts(content: str | list[ItemPart] | None) -> list[ItemPart]:
    return [ItemPart(type="text", text=content)] if isinstance(content, str) else content or []


def part_text(place: str, content: str | list[ItemPart] | None) -> str:
    """The text of a content, whose parts are joined."""
    parts = _parts(content)
    for index, part in enumerate(parts):
        if part.type not in TEXT_TYPES:
            raise refusal(f"{place}[{index}].type", f"This model reads text alone, and not {part.type[:40]!r}.")
    return "".join(part.text or part.refusal or "" for part in parts)


def _structure(form: TextFormat | None) -> Structure | None:
    if form is None or form.type == "text":
        return None
    text = {"json_schema": json.dumps(form.schema_) if form.schema_ is not None else "", "json_object": ""}
    text |= {"regex": form.regex or "", "grammar": form.grammar or ""}
    if form.type != "json_object" and not text[form.type]:
        field = "schema" if form.type == "json_schema" else form.type
        raise HttpError(400, f"text.format.{field} is missing.", param="text.format")
    return Structure(kind=form.type, text=text[form.type])


def _rules(
    tools: Sequence[ResponsesTool] | None, choice: str | NamedTool | None, *, parallel: bool
) -> ToolRules | None:
    """The tools are strict unless they say otherwise, as this API has it."""
    given = tools or ()
    check_types([tool.type for tool in given], "function")
    return rules_of(
        [tool_of(tool.name, tool.description, tool.parameters, strict=tool.strict is not False) for tool in given],
        "required" if isinstance(choice, NamedTool) else choice or "auto",
        only=choice.name if isinstance(choice, NamedTool) else "",
        parallel=parallel,
    )
