"""Responses, and chats with thoughts and calls, as OpenAI's client reads them."""

from __future__ import annotations

import json
from typing import Any, cast

import openai
import pytest

from layerline.chat import Message, ToolCall
from tests.fakes.http_program import Program
from tests.fakes.scripted_coordinator import (
    ANSWER,
    LOST,
    SCHEMA,
    TEXT,
    finished,
    said,
    scripted,
)

pytestmark = pytest.mark.usefixtures("nothing_left_over")

RESPONSES = "/v1/responses"


def openai_of(program: Program) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0)


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
