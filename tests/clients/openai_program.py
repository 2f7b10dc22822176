"""The `openai` client: blocking and asynchronous, streams, a structured answer, and a round of tools."""

from __future__ import annotations

import asyncio
from typing import Any

from openai import AsyncOpenAI, OpenAI

from tests.clients.questions import (
    ANSWER,
    BASE,
    KEY,
    MESSAGES,
    MODEL,
    QUESTION,
    SYSTEM,
    TOOL,
    City,
    equal,
    fits_weather,
)

GREEDY: Any = {"model": MODEL, "messages": MESSAGES, "temperature": 0}


def chats(client: OpenAI) -> None:
    equal([model.id for model in client.models.list()], [MODEL])
    answer = client.chat.completions.create(**GREEDY)
    equal((answer.choices[0].message.content, answer.choices[0].finish_reason), (ANSWER, "stop"))
    equal(answer.usage.completion_tokens, 8)
    chunks = list(client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), ANSWER)
    equal(chunks[-1].usage.completion_tokens, 8)
    likely = client.chat.completions.create(**GREEDY, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    equal(bytes(byte for each in likely for byte in each.bytes).decode(), ANSWER)
    equal([each.top_logprobs[0].token for each in likely], [each.token for each in likely])
    parsed = client.chat.completions.parse(**GREEDY, max_tokens=80, response_format=City)
    if parsed.choices[0].finish_reason == "stop":
        equal(type(parsed.choices[0].message.parsed), City)
    text = client.completions.create(
        model=MODEL, prompt="The capital of France is", temperature=0, max_tokens=3, echo=True
    )
    equal(text.choices[0].text.startswith("The capital of France is"), True)


def tools(client: OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    given: Any = {"model": MODEL, "temperature": 0, "tools": [TOOL]}
    message = client.chat.completions.create(**given, messages=asked, tool_choice="required").choices[0].message
    (call,) = message.tool_calls[:1]
    equal(call.function.name, "weather")
    fits_weather(call.function.arguments)
    asked += [message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    answer = client.chat.completions.create(**given, messages=asked, tool_choice="none", max_tokens=20).choices[0]
    equal(bool(answer.message.content), True)
    with client.chat.completions.stream(**given, messages=asked[:1], tool_choice="required") as stream:
        final = stream.get_final_completion().choices[0]
    equal(final.finish_reason, "tool_calls")
    fits_weather(final.message.tool_calls[0].function.arguments)


def responses(client: OpenAI) -> None:
    given: Any = {"model": MODEL, "temperature": 0, "instructions": SYSTEM}
    answer = client.responses.create(**given, input=QUESTION)
    equal((answer.output_text, answer.status), (ANSWER, "completed"))
    with client.responses.stream(**given, input=QUESTION) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        equal((text, stream.get_final_response().output_text), (ANSWER, ANSWER))
    parsed = client.responses.parse(**given, input="Tell me of Paris in JSON.", text_format=City)
    equal(type(parsed.output_parsed), City)
    tool = {"type": "function", **TOOL["function"]}
    asked: Any = {**given, "tools": [tool]}
    called = client.responses.create(**asked, input="What is the weather in Paris?", tool_choice="required")
    call = next(item for item in called.output if item.type == "function_call")
    fits_weather(call.arguments)
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    told = client.responses.create(
        **asked, input=[result], previous_response_id=called.id, tool_choice="none", max_output_tokens=20
    )
    equal(bool(told.output_text), True)


def vectors(client: OpenAI) -> None:
    found = client.embeddings.create(model=MODEL, input=[QUESTION, ANSWER])
    equal([(len(each.embedding), round(sum(x * x for x in each.embedding), 3)) for each in found.data], [(576, 1)] * 2)


async def asynchronous() -> None:
    async with AsyncOpenAI(base_url=f"{BASE}/v1", api_key=KEY) as client:
        answers = await asyncio.gather(*(client.chat.completions.create(**GREEDY) for _ in range(4)))
        equal({answer.choices[0].message.content for answer in answers}, {ANSWER})
        stream = await client.chat.completions.create(**GREEDY, stream=True)
        equal("".join([chunk.choices[0].delta.content or "" async for chunk in stream]), ANSWER)


def main() -> None:
    with OpenAI(base_url=f"{BASE}/v1", api_key=KEY) as client:
        chats(client)
        tools(client)
        responses(client)
        vectors(client)
    asyncio.run(asynchronous())


main()
