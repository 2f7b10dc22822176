"""Messages in the form of Anthropic's API, as its client reads them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from layerline.chat import Message, ToolCall
from layerline.errors import OverloadedError
from tests.fakes.http_program import Program
from tests.fakes.scripted_coordinator import (
    ANSWER,
    LOST,
    SCHEMA,
    TEXT,
    said,
    scripted,
)

pytestmark = pytest.mark.usefixtures("nothing_left_over")

MESSAGES = "/v1/messages"


def anthropic_of(program: Program) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=program.url, api_key="none", max_retries=0)


ASKED: dict[str, Any] = {
    "model": "tiny",
    "max_tokens": 20,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tools": [{"name": "weather", "input_schema": SCHEMA}, {"name": "now", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Rome"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Sun."}]},
                {"type": "text", "text": "And Paris?"},
            ],
        },
    ],
}
TURNS = (
    Message(role="system", content="Be brief."),
    Message(role="user", content="Weather?"),
    Message(
        role="assistant",
        content="I look.",
        thinking="Hm.",
        tool_calls=(ToolCall(id="t1", name="weather", arguments='{"city": "Rome"}'),),
    ),
    Message(role="tool", content="Sun.", tool_call_id="t1", name="weather"),
    Message(role="user", content="And Paris?"),
)


def check_message(message: Any) -> None:
    thought, text, weather, now = message.content
    assert (thought.type, text.type, weather.type, now.type) == ("thinking", "text", "tool_use", "tool_use")
    assert thought.thinking == "I think."
    assert text.text == "Well, so."
    assert (weather.id, weather.name, weather.input) == ("call_0", "weather", {"city": "Paris"})
    assert (now.name, now.input) == ("now", {})
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (5, 4)
    assert message.usage.output_tokens == 8


async def test_a_message_of_anthropic_whole_and_as_a_stream() -> None:
    async with scripted(ANSWER) as (program, coordinator), anthropic_of(program) as client:
        check_message(await client.messages.create(**ASKED))
        async with client.messages.stream(**ASKED) as stream:
            kinds = [each.type async for each in stream]
            check_message(await stream.get_final_message())
        assert kinds.count("content_block_stop") == 4
        assert [asked.messages for asked in coordinator.asked] == [TURNS, TURNS]
        assert json.loads(coordinator.asked[0].template_variables) == {"enable_thinking": True}
        counted = await client.messages.count_tokens(**{key: ASKED[key] for key in ("model", "messages", "tools")})
        assert counted.input_tokens == 9


async def test_a_message_that_a_stop_sequence_ends_says_which() -> None:
    async with scripted(TEXT) as (program, coordinator), anthropic_of(program) as client:
        asked: dict[str, Any] = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        whole = await client.messages.create(**asked, stop_sequences=["END"])
        assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", "END")
        assert coordinator.asked[0].stop == ("END",)
        assert json.loads(coordinator.asked[0].template_variables) == {"enable_thinking": False}
        events = [each async for each in await client.messages.create(**asked, stream=True)]
        assert [each.type for each in events] == [
            *("message_start", "content_block_start", "content_block_delta", "content_block_delta"),
            *("content_block_stop", "message_delta", "message_stop"),
        ]


async def test_failures_are_told_in_the_form_of_anthropic() -> None:
    asked: dict[str, Any] = {"model": "tiny", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    busy = OverloadedError("Too many.", retry_after_s=7)
    async with scripted([busy]) as (program, _), anthropic_of(program) as client:
        for stream in (False, True):
            with pytest.raises(anthropic.RateLimitError) as caught:
                await client.messages.create(**asked, stream=stream)
            assert caught.value.response.headers["retry-after"] == "7"
    async with scripted([said("a"), LOST]) as (program, _), anthropic_of(program) as client:
        with pytest.raises(anthropic.APIStatusError, match="attic is lost"):
            async for _ in await client.messages.create(**asked, stream=True):
                pass


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "at least 1"),
        ({"messages": []}, "empty"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content is empty"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "within a turn"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "text alone"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text is missing"),
        ({"tools": [{"name": "x", "type": "web_search_20250305"}]}, "of its own"),
        ({"tools": None, "tool_choice": {"type": "any"}}, "needs tools"),
        ({"tool_choice": {"type": "tool", "name": "none"}}, "not among the tools"),
        ({"colour": 1}, "Unknown field 'colour'"),
        ({"temperature": -1}, "from 0 to 100"),
    ],
)
async def test_messages_that_cannot_be_are_refused(change: dict[str, Any], word: str) -> None:
    async with scripted(TEXT) as (program, _):
        got = await program.post(MESSAGES, {**ASKED, **change})
    assert (got.status, got.json["type"], got.error["type"]) == (400, "error", "invalid_request_error")
    assert word in got.error["message"]
