"""`langchain-openai`: a chat, a stream, a structured answer, and a tool that is bound."""

from __future__ import annotations

from langchain_openai import ChatOpenAI

from tests.clients.questions import ANSWER, BASE, KEY, MODEL, QUESTION, SYSTEM, TOOL, City, equal

ASKED = [("system", SYSTEM), ("user", QUESTION)]


def main() -> None:
    chat = ChatOpenAI(base_url=f"{BASE}/v1", api_key=KEY, model=MODEL, temperature=0, max_tokens=120)
    equal(chat.invoke(ASKED).content, ANSWER)
    equal("".join(chunk.content for chunk in chat.stream(ASKED)), ANSWER)
    city = chat.with_structured_output(City, method="json_schema").invoke("Tell me of Paris in JSON.")
    equal(type(city), City)
    message = chat.bind_tools([TOOL], tool_choice="weather").invoke("What is the weather in Paris?")
    equal((message.tool_calls[0]["name"], sorted(message.tool_calls[0]["args"])), ("weather", ["city", "days"]))


main()
