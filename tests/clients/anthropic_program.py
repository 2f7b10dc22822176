"""The `anthropic` client: blocking and asynchronous, streams, a round of tools, tokens counted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from anthropic import Anthropic, AsyncAnthropic

from tests.clients.questions import ANSWER, BASE, KEY, MODEL, QUESTION, SYSTEM, WEATHER, equal, fits_weather

ASKED: Any = {"model": MODEL, "max_tokens": 60, "extra_body": {"temperature": 0}, "system": SYSTEM}
TURN: Any = [{"role": "user", "content": QUESTION}]
ONE: Any = {"type": "any", "disable_parallel_tool_use": True}
TOOLS: Any = [{"name": "weather", "description": "The weather of a city.", "input_schema": WEATHER}]


def messages(client: Anthropic) -> None:
    equal([model.id for model in client.models.list()], [MODEL])
    answer = client.messages.create(**ASKED, messages=TURN)
    equal(([block.text for block in answer.content], answer.stop_reason), ([ANSWER], "end_turn"))
    equal(answer.usage.output_tokens, 8)
    counted = client.messages.count_tokens(model=MODEL, system=SYSTEM, messages=TURN).input_tokens
    equal(counted, answer.usage.input_tokens + answer.usage.cache_read_input_tokens)
    with client.messages.stream(**ASKED, messages=TURN) as stream:
        equal("".join(stream.text_stream), ANSWER)
        equal(stream.get_final_message().usage.output_tokens, 8)
    stopped = client.messages.create(**ASKED, messages=TURN, stop_sequences=["France"])
    equal((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", "France"))


def tools(client: Anthropic) -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Paris?"}]
    called = client.messages.create(**ASKED, messages=asked, tools=TOOLS, tool_choice=ONE)
    call = called.content[-1]
    equal((called.stop_reason, call.type, call.name), ("tool_use", "tool_use", "weather"))
    fits_weather(json.dumps(call.input))
    asked += [{"role": "assistant", "content": called.content}]
    asked += [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}]}]
    answer = client.messages.create(**ASKED, messages=asked, tools=TOOLS, tool_choice={"type": "none"})
    equal([block.type for block in answer.content], ["text"])
    with client.messages.stream(**ASKED, messages=asked[:1], tools=TOOLS, tool_choice=ONE) as stream:
        fits_weather(json.dumps(stream.get_final_message().content[-1].input))


async def asynchronous() -> None:
    async with AsyncAnthropic(base_url=BASE, api_key=KEY) as client:
        answers = await asyncio.gather(*(client.messages.create(**ASKED, messages=TURN) for _ in range(3)))
        equal({answer.content[0].text for answer in answers}, {ANSWER})


def main() -> None:
    with Anthropic(base_url=BASE, api_key=KEY) as client:
        messages(client)
        tools(client)
    asyncio.run(asynchronous())


main()
