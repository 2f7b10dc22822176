"""The body of POST /v1/chat/completions, and the request that it becomes.

Source: OpenAI's API reference, Chat completions; reasoning_content, chat_template_kwargs, top_k, min_p and others are
as vLLM and llama.cpp have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from coordinator.http.bodies import Body, refusal, refused_by_nouns
from coordinator.http.failures import HttpError
from coordinator.http.sampling_body import CompletionFields, Effort
from coordinator.http.tool_rules import check_types, rules_of, tool_of
from layerline.chat import Message, ToolCall, ToolRules
from layerline.requests import GenerateRequest, Structure

IGNORED = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "prediction", "safety_identifier", "prompt_cache_key"),
        *("prompt_cache_retention", "verbosity"),
    }
)
"""Fields of OpenAI's API that mean nothing to a local model."""


class ContentPart(Body):
    """A part of a turn's content; only text can be read."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None
    input_audio: Any = None
    file: Any = None


class CalledFunction(Body):
    """Which function, and its arguments as JSON text."""

    name: str
    arguments: str


class CalledTool(Body):
    """A call that the assistant made."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class ChatMessage(Body):
    """One turn. Other fields that an answer had come back with it, and are left aside."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None


class Function(Body):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Body):
    """A tool; there are none but functions."""

    type: str = "function"
    function: Function


class NamedFunction(Body):
    """The name of a function."""

    name: str


class NamedTool(Body):
    """The tool that is to be called."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """What an answer is to look like."""

    name: str
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """The form of an answer; `regex` and `grammar` are layerline's own."""

    type: Literal["text", "json_object", "json_schema", "regex", "grammar"]
    json_schema: JsonSchema | None = None
    regex: str | None = None
    grammar: str | None = None


class ChatBody(CompletionFields):
    """All that a chat may ask for."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    tool_format: str | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[str] | None = None

    def request(self) -> GenerateRequest:
        """The request that it is; HttpError for what cannot be."""
        if self.modalities not in (None, ["text"]):
            raise refusal("modalities", "This model answers in text alone.")
        if self.top_logprobs is not None and not self.logprobs:
            raise HttpError(400, "top_logprobs needs logprobs.", param="top_logprobs")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise HttpError(400, "Give max_completion_tokens or max_tokens, not both.", param="max_tokens")
        most = self.max_completion_tokens if self.max_tokens is None else self.max_tokens
        if most == 0:
            raise HttpError(400, "max_tokens must be at least 1.", param="max_tokens")
        with refused_by_nouns({"log_probabilities": "top_logprobs"}):
            return GenerateRequest(
                **self.asked(),
                messages=messages_of(self.messages),
                max_tokens=most or 0,
                log_probabilities=(self.top_logprobs or 0) if self.logprobs else None,
                structure=structure_of(self.response_format),
                tools=tool_rules(
                    self.tools, self.tool_choice, parallel=self.parallel_tool_calls, written=self.tool_format
                ),
                template_variables=variables_text(self.chat_template_kwargs, self.reasoning_effort),
            )


def messages_of(given: Sequence[ChatMessage]) -> tuple[Message, ...]:
    """The turns of a chat."""
    if not given:
        raise HttpError(400, "messages is empty.", param="messages")
    with refused_by_nouns():
        return tuple(_message(f"messages[{index}]", message) for index, message in enumerate(given))


def _message(place: str, message: ChatMessage) -> Message:
    return Message(
        role=message.role,
        content=text_of(f"{place}.content", message.content),
        thinking=message.reasoning_content or message.reasoning or "",
        tool_calls=tuple(
            ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
            for call in message.tool_calls or ()
        ),
        tool_call_id=message.tool_call_id or "",
        name=message.name or "",
    )


def text_of(place: str, content: str | Sequence[ContentPart] | None) -> str:
    """The text of a content, whose parts are joined."""
    if content is None or isinstance(content, str):
        return content or ""
    for index, part in enumerate(content):
        if part.type not in ("text", "refusal"):
            raise refusal(f"{place}[{index}].type", f"This model reads text alone, and not {part.type[:40]!r}.")
        if part.text is None and part.refusal is None:
            raise HttpError(400, f"{place}[{index}].text is missing.", param=f"{place}[{index}].text")
    return "".join(part.text or part.refusal or "" for part in content)


def structure_of(form: ResponseFormat | None) -> Structure | None:
    """What an answer must be; None for any text."""
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return Structure(kind="json_object")
    if form.type == "json_schema":
        if form.json_schema is None or form.json_schema.schema_ is None:
            raise HttpError(400, "response_format.json_schema.schema is missing.", param="response_format")
        return Structure(kind="json_schema", text=json.dumps(form.json_schema.schema_))
    text = form.regex if form.type == "regex" else form.grammar
    if not text:
        raise HttpError(400, f"response_format.{form.type} is missing.", param="response_format")
    return Structure(kind=form.type, text=text)


def tool_rules(
    tools: Sequence[FunctionTool] | None,
    choice: str | NamedTool | None = None,
    *,
    parallel: bool | None = None,
    written: str | None = None,
) -> ToolRules | None:
    """The tools and how they may be called; None without any."""
    given = tools or ()
    check_types([tool.type for tool in given], "function")
    functions = [tool.function for tool in given]
    return rules_of(
        [tool_of(each.name, each.description, each.parameters, strict=each.strict) for each in functions],
        "required" if isinstance(choice, NamedTool) else choice or "auto",
        only=choice.function.name if isinstance(choice, NamedTool) else "",
        parallel=parallel is not False,
        written=written or "",
    )


def variables_text(variables: Mapping[str, Any] | None, effort: str | None = None) -> str:
    """What the template is told beside the chat, as JSON; "" for nothing.

    An effort of "none" asks a model not to think, in the word that templates have for it.
    """
    told = dict(variables or {})
    if effort is not None:
        told.setdefault("reasoning_effort", effort)
        if effort == "none":
            told.setdefault("enable_thinking", False)
    return json.dumps(told) if told else ""
