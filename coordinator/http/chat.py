"""POST /v1/chat/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from coordinator.coordinator import Coordinator
from coordinator.http.bodies import read_body
from coordinator.http.chat_body import IGNORED, ChatBody
from coordinator.http.event_stream import EventStream, begun, event, unless_left
from coordinator.http.likelihoods import chat_logprobs
from coordinator.http.openai_stream import openai_stream
from coordinator.http.reply import Replies, Reply, usage_of
from layerline.answer import AnswerItem, Finished, Piece
from layerline.requests import GenerateRequest
from layerline.version import __version__

FINGERPRINT = f"layerline-{__version__}"


def chat_routes(coordinator: Coordinator) -> list[BaseRoute]:
    """POST /v1/chat/completions."""

    async def chat(request: Request) -> Response | ASGIApp:
        body = await read_body(request, ChatBody, IGNORED)
        asked = body.request()

        def head() -> dict[str, Any]:  # of the model that answers, which may be brought up for it
            kind = "chat.completion.chunk" if body.stream else "chat.completion"
            return head_of("chatcmpl", kind, coordinator.facts().model)

        if body.stream:
            items = await unless_left(request, begun(coordinator.generate(asked)))
            return EventStream(openai_stream(_chunks(items, asked, head(), tells_usage=body.tells_usage)))
        replies = await unless_left(request, Replies.of(coordinator.generate(asked)))
        return JSONResponse(_whole(replies, asked, head()))

    return [Route("/v1/chat/completions", chat, methods=["POST"])]


def head_of(prefix: str, kind: str, model: str) -> dict[str, Any]:
    """What every object of an answer begins with."""
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": FINGERPRINT,
    }


def _whole(replies: Replies, asked: GenerateRequest, head: dict[str, Any]) -> dict[str, Any]:
    choices = [
        {
            "index": reply.index,
            "message": _message(reply),
            "logprobs": chat_logprobs(reply.likelihoods) if asked.log_probabilities is not None else None,
            "finish_reason": reply.finish_reason,
        }
        for reply in replies.replies
    ]
    return {**head, "choices": choices, "usage": usage_of(replies.finished)}


def _message(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["content"] = reply.text or None
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    return message


async def _chunks(
    items: AsyncGenerator[AnswerItem, None], asked: GenerateRequest, head: dict[str, Any], *, tells_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The answer as it is made; a failure on the way is told in the stream, which then ends."""
    usage: dict[str, Any] = {"usage": None} if tells_usage else {}
    finished: list[Finished] = []

    def chunk(index: int, delta: dict[str, Any], reason: str | None = None, likely: Any = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": likely, "finish_reason": reason}
        return event({**head, "choices": [choice], **usage})

    for index in range(asked.n):
        yield chunk(index, {"role": "assistant", "content": "", "refusal": None})
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Finished):
                finished.append(item)
                yield chunk(item.index, {}, item.finish_reason)
            elif isinstance(item, Piece):
                likely = chat_logprobs(item.likelihoods) if item.likelihoods else None
                yield chunk(item.index, _delta(item), likely=likely)
    if tells_usage:
        yield event({**head, "choices": [], "usage": usage_of(finished)})


def _delta(piece: Piece) -> dict[str, Any]:
    if piece.tool_call is not None:
        call, function = piece.tool_call, {"arguments": piece.tool_call.arguments}
        if call.id:
            begun_call = {"index": call.call, "id": call.id, "type": "function"}
            return {"tool_calls": [{**begun_call, "function": {"name": call.name, **function}}]}
        return {"tool_calls": [{"index": call.call, "function": function}]}
    return {"reasoning_content" if piece.kind == "thinking" else "content": piece.text}
