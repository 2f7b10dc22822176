"""POST /v1/messages and /v1/messages/count_tokens, in the form of Anthropic's API."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from coordinator.coordinator import Coordinator
from coordinator.http.blocks import Block, BlockBegun, BlockEnded, BlockGrown, block_events, blocks_of
from coordinator.http.bodies import read_body
from coordinator.http.event_stream import EventStream, begun, event, unless_left
from coordinator.http.failures import ANTHROPIC_PATH, anthropic_body, failure_of
from coordinator.http.messages_body import IGNORED, CountBody, MessagesBody
from coordinator.text.answer_forms.strict_json import loaded
from layerline.answer import AnswerItem, Finished, Usage

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def message_routes(coordinator: Coordinator) -> list[BaseRoute]:
    """POST /v1/messages and /v1/messages/count_tokens."""

    async def message(request: Request) -> Response | ASGIApp:
        body = await read_body(request, MessagesBody, IGNORED)
        asked = body.asked()
        if body.stream:
            tokens = len(await unless_left(request, coordinator.prompt_ids(asked)))  # which the first event tells
            items = await unless_left(request, begun(coordinator.generate(asked)))
            return EventStream(_events(items, _head(coordinator, Usage(prompt_tokens=tokens, completion_tokens=0))))
        blocks, finished = await unless_left(request, blocks_of(coordinator.generate(asked)))
        whole = _head(coordinator, finished.usage) | {"content": [_whole(block) for block in blocks]}
        return JSONResponse(whole | _stop(finished))

    async def count(request: Request) -> Response:
        body = await read_body(request, CountBody, IGNORED)
        return JSONResponse({"input_tokens": len(await coordinator.prompt_ids(body.request()))})

    return [
        Route(ANTHROPIC_PATH, message, methods=["POST"]),
        Route(f"{ANTHROPIC_PATH}/count_tokens", count, methods=["POST"]),
    ]


def _head(coordinator: Coordinator, usage: Usage) -> dict[str, Any]:
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": coordinator.facts().model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(usage),
    }


def _usage(usage: Usage) -> dict[str, int]:
    """Tokens of the prompt that were cached are told apart."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def _stop(finished: Finished) -> dict[str, Any]:
    if finished.stopped_by:
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stopped_by}
    return {"stop_reason": STOP_REASONS[finished.finish_reason], "stop_sequence": None}


def _whole(block: Block) -> dict[str, Any]:
    if block.kind == "tool_call":
        return {**_begun(block), "input": _arguments(block.text)}
    return {**_begun(block), "thinking" if block.kind == "thinking" else "text": block.text}


def _begun(block: Block) -> dict[str, Any]:
    if block.kind == "tool_call":
        return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": {}}
    if block.kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _arguments(text: str) -> dict[str, Any]:
    """The object that a call's arguments are; text that is none, which only a call that was not held to can have."""
    try:
        found = loaded(text or "{}")
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"arguments": text}


async def _events(items: AsyncGenerator[AnswerItem, None], head: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    """The answer as it is made; a failure on the way is told in the stream, which then ends."""
    try:
        yield _event({"type": "message_start", "message": head})
        yield _event({"type": "ping"})
        async with aclosing(block_events(items)) as events:
            async for each in events:
                yield _block_event(each) if not isinstance(each, Finished) else _end(each)
        yield _event({"type": "message_stop"})
    except Exception as failure:  # noqa: BLE001  # the HTTP boundary: the status is sent already
        yield _event(anthropic_body(failure_of(failure)))


def _block_event(each: BlockBegun | BlockGrown | BlockEnded) -> bytes:
    index = each.block.number
    if isinstance(each, BlockBegun):
        return _event({"type": "content_block_start", "index": index, "content_block": _begun(each.block)})
    if isinstance(each, BlockEnded):
        return _event({"type": "content_block_stop", "index": index})
    kind, field = {
        "text": ("text_delta", "text"),
        "thinking": ("thinking_delta", "thinking"),
        "tool_call": ("input_json_delta", "partial_json"),
    }[each.block.kind]
    return _event({"type": "content_block_delta", "index": index, "delta": {"type": kind, field: each.text}})


def _end(finished: Finished) -> bytes:
    return _event({"type": "message_delta", "delta": _stop(finished), "usage": _usage(finished.usage)})


def _event(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])
