"""`pydantic-ai`: an agent that answers, and one whose answer is structured by the server."""

from __future__ import annotations

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.clients.questions import ANSWER, BASE, KEY, MODEL, QUESTION, SYSTEM, City, equal


def main() -> None:
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=f"{BASE}/v1", api_key=KEY))
    settings = ModelSettings(temperature=0, max_tokens=120)
    agent = Agent(model, system_prompt=SYSTEM, model_settings=settings)
    equal(agent.run_sync(QUESTION).output, ANSWER)
    structured = Agent(model, output_type=NativeOutput(City), model_settings=settings)
    equal(type(structured.run_sync("Tell me of Paris in JSON.").output), City)
    by_tool = Agent(model, output_type=City, model_settings=settings)
    equal(type(by_tool.run_sync("Tell me of Paris.").output), City)


main()
