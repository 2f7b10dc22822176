"""Whatever is in a body, it becomes a request or is refused by name: nothing else comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.http import chat_body, completions, embeddings, messages_body, responses_body
from coordinator.http.bodies import Body, body_of
from coordinator.http.failures import HttpError

TURN = {"role": "user", "content": "a"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA, "strict": True}
DRAWN: dict[str, Any] = {"model": "m", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 3, "logit_bias": {"5": 1}}
CHAT: dict[str, Any] = {
    **DRAWN,
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        TURN,
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "stop": ["x"],
    "logprobs": True,
    "top_logprobs": 2,
    "chat_template_kwargs": {"a": 1},
}
COMPLETION: dict[str, Any] = {**DRAWN, "prompt": ["a", "b"], "n": 2, "echo": True, "logprobs": 1, "max_tokens": 0}
RESPONSE: dict[str, Any] = {
    **DRAWN,
    "input": [
        TURN,
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "r"}]},
    ],
    "tools": [{"type": "function", **FUNCTION}],
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
}
MESSAGE: dict[str, Any] = {
    **DRAWN,
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        TURN,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
    ],
    "tools": [{"name": "f", "input_schema": SCHEMA}],
    "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled", "budget_tokens": 5},
}
EMBEDDING: dict[str, Any] = {"input": ["a", "b"], "dimensions": 2, "pooling": "last", "encoding_format": "float"}

KINDS: list[tuple[type[Body], dict[str, Any], Callable[[Any], object]]] = [
    (chat_body.ChatBody, CHAT, lambda body: body.request()),
    (completions.CompletionBody, COMPLETION, lambda body: body.requests()),
    (responses_body.ResponsesBody, RESPONSE, lambda body: body.request(())),
    (messages_body.MessagesBody, MESSAGE, lambda body: body.asked()),
    (embeddings.EmbeddingBody, EMBEDDING, lambda body: body.request()),
]
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every list or object in a body with each of its keys."""
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]
    return []


@pytest.mark.parametrize(("kind", "example", "asked"), KINDS)
def test_the_examples_are_requests(kind: type[Body], example: dict[str, Any], asked: Callable[[Any], object]) -> None:
    asked(body_of(json.dumps(example).encode(), kind))


@pytest.mark.parametrize(("kind", "example", "asked"), KINDS)
@given(data=st.data())
def test_junk_anywhere_is_a_request_or_refused(
    kind: type[Body], example: dict[str, Any], asked: Callable[[Any], object], data: st.DataObject
) -> None:
    body = json.loads(json.dumps(example))
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(body)))
        if data.draw(st.booleans()):
            holder[key] = data.draw(JUNK)
        else:
            del holder[key]
        if not places(body):
            break
    status = 200
    try:
        asked(body_of(json.dumps(body).encode(), kind))
    except HttpError as refused:
        status = refused.status
    assert status in (200, 400)
