"""The `anthropic` client: a message, a stream, tools, and the count of tokens."""

from __future__ import annotations

from typing import Any

from anthropic import Anthropic

from tests.clients.questions import ANSWER, BASE, KEY, MODEL, QUESTION, SYSTEM, WEATHER, equal

ASKED: Any = {
    "model": MODEL,
    "system": SYSTEM,
    "messages": [{"role": "user", "content": QUESTION}],
    "max_tokens": 40,
    "temperature": 0,
}


def main() -> None:
    client = Anthropic(base_url=BASE, api_key=KEY)
    message = client.messages.create(**ASKED)
    equal((message.content[0].text, message.stop_reason), (ANSWER, "end_turn"))
    counted = client.messages.count_tokens(model=MODEL, system=SYSTEM, messages=ASKED["messages"])
    equal(counted.input_tokens, message.usage.input_tokens)
    with client.messages.stream(**ASKED) as stream:
        equal("".join(stream.text_stream), ANSWER)
    tool: Any = {"name": "weather", "description": "The weather.", "input_schema": WEATHER}
    called = client.messages.create(**{**ASKED, "max_tokens": 200}, tools=[tool], tool_choice={"type": "any"})
    (use,) = [block for block in called.content if block.type == "tool_use"][:1]
    equal((called.stop_reason, use.name, sorted(use.input)), ("tool_use", "weather", ["city", "days"]))


main()
