"""A response and its items, in the form of OpenAI's Responses API."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from coordinator.http.blocks import Block
from coordinator.http.likelihoods import chat_logprobs
from coordinator.http.responses_body import ResponsesBody
from layerline.answer import Finished, Usage
from layerline.chat import Message, ToolCall

PREFIXES = {"text": "msg", "thinking": "rs", "tool_call": "fc"}


def begun_response(body: ResponsesBody, model: str) -> dict[str, Any]:
    """The response before its first item."""
    text = body.text.model_dump(by_alias=True, exclude_none=True) if body.text else {}
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": body.reasoning.effort if body.reasoning else None, "summary": None},
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": body.tool_choice if isinstance(body.tool_choice, str) else _choice(body),
        "tools": [{"strict": True, **tool.model_dump(exclude_none=True)} for tool in body.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "usage": None,
        "metadata": body.metadata or {},
    }


def _choice(body: ResponsesBody) -> Any:
    return "auto" if body.tool_choice is None or isinstance(body.tool_choice, str) else body.tool_choice.model_dump()


def ended_response(response: dict[str, Any], blocks: Sequence[Block], finished: Finished) -> dict[str, Any]:
    """The response with all its items, and how it ended."""
    whole = finished.finish_reason != "length"
    return {
        **response,
        "status": "completed" if whole else "incomplete",
        "incomplete_details": None if whole else {"reason": "max_output_tokens"},
        "output": [
            item_of(block, response["id"], "completed" if whole or block is not blocks[-1] else "incomplete")
            for block in blocks
        ],
        "usage": _usage(finished.usage),
    }


def item_id(block: Block, response_id: str) -> str:
    """The id of a block's item: the same wherever it is told."""
    return f"{PREFIXES[block.kind]}_{response_id.removeprefix('resp_')}{block.number:02}"


def item_of(block: Block, response_id: str, status: str) -> dict[str, Any]:
    """A block as an item; one that is only begun has no content yet."""
    own: dict[str, Any] = {"id": item_id(block, response_id), "status": status}
    empty = status == "in_progress"
    if block.kind == "tool_call":
        return {**own, "type": "function_call", "call_id": block.call_id, "name": block.name, "arguments": block.text}
    if block.kind == "thinking":
        thought = [] if empty else [{"type": "reasoning_text", "text": block.text}]
        return {**own, "type": "reasoning", "summary": [], "content": thought}
    return {**own, "type": "message", "role": "assistant", "content": [] if empty else [text_part(block)]}


def text_part(block: Block) -> dict[str, Any]:
    """The part that a text is."""
    told = chat_logprobs(block.likelihoods)["content"]
    return {"type": "output_text", "text": block.text, "annotations": [], "logprobs": told}


def turn_of(blocks: Sequence[Block]) -> Message:
    """The turn of the assistant that the blocks are."""
    return Message(
        role="assistant",
        content="".join(block.text for block in blocks if block.kind == "text"),
        thinking="".join(block.text for block in blocks if block.kind == "thinking"),
        tool_calls=tuple(
            ToolCall(id=block.call_id, name=block.name, arguments=block.text)
            for block in blocks
            if block.kind == "tool_call"
        ),
    )


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.thinking_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
