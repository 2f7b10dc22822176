"""`litellm`: a chat, a stream and a tool, as OpenAI's, as a server that it knows by another name, and as
Anthropic's.
"""

from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the internet for prices

import litellm

from tests.clients.questions import ANSWER, BASE, KEY, MESSAGES, MODEL, TOOL, equal, fits_weather


def main() -> None:
    litellm.telemetry = False
    for model in (f"openai/{MODEL}", f"hosted_vllm/{MODEL}"):
        given = {"model": model, "api_base": f"{BASE}/v1", "api_key": KEY, "temperature": 0, "max_tokens": 120}
        answer = litellm.completion(**given, messages=MESSAGES)
        equal(answer.choices[0].message.content, ANSWER)
        chunks = litellm.completion(**given, messages=MESSAGES, stream=True)
        equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), ANSWER)
        asked = [{"role": "user", "content": "What is the weather in Paris?"}]
        called = litellm.completion(**given, messages=asked, tools=[TOOL], tool_choice="required")
        fits_weather(called.choices[0].message.tool_calls[0].function.arguments)
    given = {"model": f"anthropic/{MODEL}", "api_base": BASE, "api_key": KEY, "temperature": 0, "max_tokens": 120}
    answer = litellm.completion(**given, messages=MESSAGES)
    equal(answer.choices[0].message.content, ANSWER)
    chunks = litellm.completion(**given, messages=MESSAGES, stream=True)
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), ANSWER)
    called = litellm.completion(**given, messages=asked, tools=[TOOL], tool_choice="required")
    fits_weather(called.choices[0].message.tool_calls[0].function.arguments)


main()
