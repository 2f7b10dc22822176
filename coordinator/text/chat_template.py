"""Chats to prompts by the model's own template, rendered in a text child; what one may do there is decided there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.text.process import OverLimitError, TextProcess
from layerline.chat import Message, Tool, ToolCall
from layerline.errors import LayerlineError, ModelError, ModelUnsupportedError, RequestError
from layerline.models.card import TokenizerCard

RENDER_DEADLINE_S = 10.0
PLAIN_TEXT = "Send plain text instead: --raw on the command line, prompt= in the SDK."


class ChatTemplate:
    """The chat template of `card`, rendered in `process`."""

    def __init__(self, card: TokenizerCard, process: TextProcess, *, deadline_s: float = RENDER_DEADLINE_S) -> None:
        self._card = card
        self._process = process
        self._deadline_s = deadline_s

    @property
    def text(self) -> str:
        """The template itself; ModelUnsupportedError if the model has none."""
        if self._card.chat_template is None:
            raise ModelUnsupportedError("The model has no chat template.", remedy=PLAIN_TEXT)
        return self._card.chat_template

    async def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Tool] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for `messages`, ready for the assistant's answer; control tokens are written out in it.

        `tools` are functions; `variables` are switches of this template, such as `enable_thinking`.
        ModelUnsupportedError if the model has no template; ModelError if the template is broken or exceeds its limits
        of time and memory; RequestError if it refuses these messages or makes too long a text of them.
        OverloadedError if too many renders are waiting.
        """
        template = self.text
        knows_developer = "developer" in template
        request = {
            "task": "render",
            "template": template,
            "messages": [_plain(message, knows_developer=knows_developer) for message in messages],
            "bos_token": self._card.bos_token,
            "eos_token": self._card.eos_token,
            "add_generation_prompt": add_generation_prompt,
            "tools": [_function(tool) for tool in tools] if tools else None,
            "variables": dict(variables or {}),
        }
        answer = await self._answer(request)
        if answer.get("error") == "failed" and any(message.tool_calls for message in messages):
            # Some templates write the arguments of calls as they are, and need them as text.
            turns = [_plain(message, knows_developer=knows_developer, as_text=True) for message in messages]
            answer = await self._answer({**request, "messages": turns})
        text = answer.get("text")
        if not isinstance(text, str):
            raise _error(str(answer.get("error")), str(answer.get("reason")))
        return text

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._process.ask(request, deadline_s=self._deadline_s)
        except OverLimitError as error:
            raise _error("limit", str(error)) from error


def _plain(message: Message, *, knows_developer: bool, as_text: bool = False) -> dict[str, Any]:
    """A turn as templates know it; the arguments of calls are text if they are wanted `as_text`."""
    role = "system" if message.role == "developer" and not knows_developer else message.role
    plain: dict[str, Any] = {"role": role, "content": well_formed(message.content)}
    if message.thinking:
        plain["reasoning_content"] = well_formed(message.thinking)
    if message.tool_calls:
        plain["tool_calls"] = [_called(call, as_text=as_text) for call in message.tool_calls]
    if message.tool_call_id:
        plain["tool_call_id"] = well_formed(message.tool_call_id)
    if message.name:
        plain["name"] = well_formed(message.name)
    return plain


def _called(call: ToolCall, *, as_text: bool) -> dict[str, Any]:
    """A call; its arguments as an object, which templates write out, or as text where they are none."""
    arguments: Any = well_formed(call.arguments) or "{}"
    if not as_text:
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(arguments)
            arguments = found if isinstance(found, dict) else arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _function(tool: Tool) -> dict[str, Any]:
    """A tool as OpenAI's API and templates have it; RequestError for parameters that are no schema."""
    try:
        parameters = json.loads(tool.parameters)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The parameters of the tool {tool.name[:60]!r} are not JSON: {error}.") from None
    if not isinstance(parameters, dict):
        raise RequestError(f"The parameters of the tool {tool.name[:60]!r} are no JSON schema of an object.")
    function = {"name": tool.name, "description": well_formed(tool.description), "parameters": parameters}
    return {"type": "function", "function": function}


def well_formed(text: str) -> str:
    """`text` with lone surrogates, which have no UTF-8, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _error(kind: str, reason: str) -> LayerlineError:
    """The error for what the child answered."""
    if kind == "refused":
        return RequestError(f"The model's chat template refuses these messages: {reason.rstrip('.')}.")
    if kind == "failed":
        return RequestError(f"The model's chat template failed on these messages ({reason}).", remedy=PLAIN_TEXT)
    if kind == "too_long":
        return RequestError(f"The chat becomes too long a prompt: {reason}.", remedy="Shorten the messages.")
    if kind == "limit":
        return ModelError(f"The model's chat template exceeds its limits: {reason}.", remedy=PLAIN_TEXT)
    return ModelError(f"The model's chat template is broken: {reason}.", remedy=PLAIN_TEXT)
