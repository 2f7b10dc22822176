"""Chats to prompts by the model's own template, rendered in a limited child process.

Owns the child: it is started at the first render, kept, ended when it fails or is late, and started again.
What a template may do is decided in `coordinator.text.render_child`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from layerline.errors import (
    LayerlineError,
    ModelError,
    ModelUnsupportedError,
    OverloadedError,
    RequestError,
)
from layerline.models.card import TokenizerCard
from layerline.requests import Message

RENDER_DEADLINE_S = 5.0
MAX_RENDERS_WAITING = 64
RETRY_AFTER_S = 2  # a render takes some hundredths of a second
MAX_ANSWER_BYTES = 32 << 20  # JSON escapes make up to six bytes of one, and the child stops at 4 MiB of text
PLAIN_TEXT = "Send plain text instead: --raw on the command line, prompt= in the SDK."


class ChatTemplate:
    """`async with ChatTemplate(card) as chat: await chat.render(messages)`; leaving it ends the child."""

    def __init__(self, card: TokenizerCard, *, deadline_s: float = RENDER_DEADLINE_S) -> None:
        self._card = card
        self._deadline_s = deadline_s
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end_child()

    async def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt for `messages`, ready for the assistant's answer; control tokens are written out in it.

        ModelUnsupportedError if the model has no template; ModelError if the template is broken or exceeds its limits
        of time and memory; RequestError if it refuses these messages or makes too long a text of them.
        OverloadedError if too many renders are waiting.
        """
        if self._card.chat_template is None:
            raise ModelUnsupportedError("The model has no chat template.", remedy=PLAIN_TEXT)
        if self._waiting >= MAX_RENDERS_WAITING:
            raise OverloadedError(
                f"{self._waiting} chats are being prepared already, as many as may.",
                remedy=f"Try again in about {RETRY_AFTER_S} s.",
                retry_after_s=RETRY_AFTER_S,
            )
        request = {
            "template": self._card.chat_template,
            "messages": [{"role": message.role, "content": message.content} for message in messages],
            "bos_token": self._card.bos_token,
            "eos_token": self._card.eos_token,
            "add_generation_prompt": add_generation_prompt,
        }
        answer = await self._ask_in_turn(json.dumps(request).encode() + b"\n")
        if "text" not in answer:
            raise _error(answer.get("error", ""), answer.get("reason", ""))
        return answer["text"]

    async def _ask_in_turn(self, line: bytes) -> dict[str, str]:
        self._waiting += 1
        try:
            async with self._lock:
                return await self._ask(line)
        finally:
            self._waiting -= 1

    async def _ask(self, line: bytes) -> dict[str, str]:
        """The child's answer; a child that does not give one is ended, so that the next render has a fresh one."""
        answered = False
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await self._exchange(line)
            answered = True
            return answer
        except TimeoutError as error:
            raise _error("limit", f"it took over {self._deadline_s:g} s") from error
        except (ValueError, OSError) as error:
            raise _error("limit", "its process ended over processor time or memory") from error
        finally:
            if not answered:
                await self._end_child()

    async def _exchange(self, line: bytes) -> dict[str, str]:
        if self._child is None:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "coordinator.text.render_child"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=MAX_ANSWER_BYTES,
                start_new_session=True,  # Ctrl-C is for the parent
            )
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line)
        await stdin.drain()
        answer: dict[str, Any] = json.loads(await stdout.readline())
        return answer

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.returncode is None:
            child.kill()
        await child.communicate()
        await asyncio.sleep(0)  # asyncio closes its transport now; one that outlives the event loop complains


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
