"""Thoughts, texts and calls in the form of each API, as the clients of OpenAI and Anthropic read them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import anthropic
import openai
import pytest

from coordinator.coordinator import Coordinator
from layerline.answer import AnswerItem
from layerline.chat import Message, ToolCall
from layerline.errors import NodeLostError, OverloadedError
from tests.fakes.http_program import Program, http_of
from tests.fakes.scripted_coordinator import ScriptedCoordinator, called, finished, said

pytestmark = pytest.mark.usefixtures("nothing_left_over")

ANSWER: list[AnswerItem | Exception] = [
    said("I th", "thinking"),
    said("ink.", "thinking"),
    said("Well, ", log_probability=-0.5),
    said("so.", log_probability=-0.25),
    *called(0, "weather", '{"city": ', '"Paris"}'),
    *called(1, "now", "{}"),
    finished("tool_calls"),
]
TEXT: list[AnswerItem | Exception] = [said("a"), said("b"), finished("stop", stopped_by="END")]
LOST = NodeLostError("The node attic is lost.", node="attic")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"


@asynccontextmanager
async def scripted(items: Sequence[AnswerItem | Exception]) -> AsyncIterator[tuple[Program, ScriptedCoordinator]]:
    coordinator = ScriptedCoordinator(items)
    async with http_of(cast("Coordinator", coordinator)) as program:
        yield program, coordinator


def openai_of(program: Program) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0)


def anthropic_of(program: Program) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=program.url, api_key="none", max_retries=0)


# --- Anthropic's

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


# --- OpenAI's responses


def check_response(response: Any) -> None:
    thought, text, weather, now = response.output
    assert (thought.type, text.type, weather.type, now.type) == (
        "reasoning",
        "message",
        "function_call",
        "function_call",
    )
    assert [part.text for part in thought.content] == ["I think."]
    assert response.output_text == "Well, so."
    assert [each.logprob for each in text.content[0].logprobs] == [-0.5, -0.25]
    assert (weather.call_id, weather.name, weather.arguments) == ("call_0", "weather", '{"city": "Paris"}')
    assert now.arguments == "{}"
    assert response.status == "completed"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (9, 8)
    assert response.usage.input_tokens_details.cached_tokens == 4


async def test_a_response_whole_and_as_a_stream() -> None:
    asked: dict[str, Any] = {
        "model": "tiny",
        "input": "Weather?",
        "instructions": "Be brief.",
        "include": ["message.output_text.logprobs"],
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}],
        "reasoning": {"effort": "low"},
    }
    async with scripted(ANSWER) as (program, coordinator), openai_of(program) as client:
        check_response(await client.responses.create(**asked))
        events = [each async for each in await client.responses.create(**asked, stream=True)]
        assert [each.sequence_number for each in events] == list(range(len(events)))
        assert [each.type for each in events[:3]] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
        ]
        last = events[-1]
        assert last.type == "response.completed"
        check_response(last.response)
        async with client.responses.stream(**asked) as stream:
            async for _ in stream:
                pass
            check_response(await stream.get_final_response())
        request = coordinator.asked[0]
        assert request.messages == (
            Message(role="system", content="Be brief."),
            Message(role="user", content="Weather?"),
        )
        assert (request.log_probabilities, json.loads(request.template_variables)) == (0, {"reasoning_effort": "low"})
        ids = {each.id for each in last.response.output}
        told = {each.item_id for each in events if hasattr(each, "item_id")}
        assert told <= ids


async def test_a_response_goes_on_from_the_one_before() -> None:
    async with scripted(ANSWER) as (program, coordinator), openai_of(program) as client:
        first = await client.responses.create(model="tiny", input="Weather?", instructions="Once.")
        result = {"type": "function_call_output", "call_id": "call_0", "output": "Sun."}
        second = await client.responses.create(model="tiny", input=[result], previous_response_id=first.id)  # type: ignore[list-item]
        said_before = Message(
            role="assistant",
            content="Well, so.",
            thinking="I think.",
            tool_calls=(
                ToolCall(id="call_0", name="weather", arguments='{"city": "Paris"}'),
                ToolCall(id="call_1", name="now", arguments="{}"),
            ),
        )
        turns: tuple[Message, ...] = (Message(role="user", content="Weather?"), said_before)
        turns += (Message(role="tool", content="Sun.", tool_call_id="call_0"),)
        assert coordinator.asked[1].messages == turns, "instructions are for one response alone"
        assert (await client.responses.retrieve(second.id)).id == second.id
        await client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(second.id)
        with pytest.raises(openai.NotFoundError, match="kept for an hour"):
            await client.responses.create(model="tiny", input="a", previous_response_id=second.id)
        unkept = await client.responses.create(model="tiny", input="a", store=False)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(unkept.id)


async def test_items_of_an_answer_come_back_as_one_turn() -> None:
    async with scripted(ANSWER) as (program, coordinator), openai_of(program) as client:
        first = await client.responses.create(model="tiny", input="Weather?")
        items = [{"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}]
        items += [each.model_dump(exclude_none=True) for each in first.output]
        items += [{"type": "function_call_output", "call_id": "call_1", "output": "Noon."}]
        await client.responses.create(model="tiny", input=cast("Any", items))
        messages = coordinator.asked[1].messages
        assert messages is not None
        assert [message.role for message in messages] == ["user", "assistant", "tool"]
        assert (messages[1].thinking, messages[1].content) == ("I think.", "Well, so.")
        assert [call.name for call in messages[1].tool_calls] == ["weather", "now"]


async def test_a_response_that_is_cut_short_or_fails_says_so() -> None:
    async with scripted([said("a"), finished("length")]) as (program, _), openai_of(program) as client:
        cut = await client.responses.create(model="tiny", input="a", max_output_tokens=1)
        assert (cut.status, cut.output[0].status) == ("incomplete", "incomplete")  # type: ignore[union-attr]
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"
    async with scripted([said("a"), LOST]) as (program, _), openai_of(program) as client:
        *_, last = [each async for each in await client.responses.create(model="tiny", input="a", stream=True)]
        assert last.type == "response.failed"
        assert last.response.error is not None
        assert "attic is lost" in last.response.error.message


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": []}, "input"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
        ({"input": [{"type": "computer_call"}]}, "input[0].type"),
        ({"input": [{"content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"n": 2}, "n"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
async def test_responses_that_cannot_be_are_refused(change: dict[str, Any], param: str) -> None:
    async with scripted(TEXT) as (program, _):
        got = await program.post(RESPONSES, {"model": "tiny", "input": "a", **change})
    assert (got.status, got.error["param"]) == (400, param)


# --- OpenAI's chats


async def test_a_chat_tells_thoughts_and_calls_apart() -> None:
    chat: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "logprobs": True}
    async with scripted(ANSWER) as (program, _), openai_of(program) as client:
        whole = (await client.chat.completions.create(**chat)).choices[0]
        assert (whole.message.content, whole.message.reasoning_content) == ("Well, so.", "I think.")
        assert whole.message.tool_calls is not None
        assert [call.id for call in whole.message.tool_calls] == ["call_0", "call_1"]
        assert whole.finish_reason == "tool_calls"
        async with client.chat.completions.stream(**chat) as stream:
            async for _ in stream:
                pass
            final = (await stream.get_final_completion()).choices[0]
        assert final.message.content == "Well, so."
        assert final.message.tool_calls is not None
        assert [call.function.arguments for call in final.message.tool_calls] == ['{"city": "Paris"}', "{}"]
