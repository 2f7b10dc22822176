"""Chats to prompts by the model's own template, rendered in a text child; what one may do there is decided there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.text.process import OverLimitError, TextProcess
from layerline.chat import Message
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

    async def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for `messages`, ready for the assistant's answer; control tokens are written out in it.

        `tools` are JSON schemas of functions; `variables` are switches of this template, such as `enable_thinking`.
        ModelUnsupportedError if the model has no template; ModelError if the template is broken or exceeds its limits
        of time and memory; RequestError if it refuses these messages or makes too long a text of them.
        OverloadedError if too many renders are waiting.
        """
        if self._card.chat_template is None:
            raise ModelUnsupportedError("The model has no chat template.", remedy=PLAIN_TEXT)
        request = {
            "task": "render",
            "template": self._card.chat_template,
            "messages": [{"role": message.role, "content": well_formed(message.content)} for message in messages],
            "bos_token": self._card.bos_token,
            "eos_token": self._card.eos_token,
            "add_generation_prompt": add_generation_prompt,
            "tools": None if tools is None else list(tools),
            "variables": dict(variables or {}),
        }
        try:
            answer = await self._process.ask(request, deadline_s=self._deadline_s)
        except OverLimitError as error:
            raise _error("limit", str(error)) from error
        text = answer.get("text")
        if not isinstance(text, str):
            raise _error(str(answer.get("error")), str(answer.get("reason")))
        return text


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
