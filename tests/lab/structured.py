"""Asks a coordinator over HTTP for an answer by each of two hundred schemas, and for a call to each of thirty tools.

`python -m tests.lab.structured URL` prints one JSON object: the answers by what was asked for. Every one of them has
been validated, but for those that were cut at their most tokens and may be; this ends with what is wrong about the
first that is not.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import jsonschema
from openai import AsyncOpenAI

from tests.fakes.json_schemas import schemas
from tests.fakes.tools import TOOLS
from tests.lab.asking import MODEL

AT_ONCE = 16
TEMPERATURES = (0.0, 1.0, 5.0)
MOST_TOKENS = 200

ENDLESS = (
    '"tree"',
    '"patternProperties"',
    '"additionalProperties": {',
    '"type": "number"',
    '"format": "time"',
    '"format": "date-time"',
)
"""In schemas of which a value may go on for ever: in itself, by properties or their names, by digits of a fraction."""


def has_no_end(schema: dict[str, Any]) -> bool:
    """Whether a value may go on for ever, so that an answer may be cut at its most tokens."""
    return any(word in json.dumps(schema) for word in ENDLESS)


async def main(url: str) -> None:
    """Asks for all."""
    turns = asyncio.Semaphore(AT_ONCE)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=300) as client:

        async def ask(name: str, schema: dict[str, Any], **options: Any) -> tuple[str, str]:
            messages: Any = [{"role": "user", "content": "Tell me something in JSON."}]
            async with turns:
                answer = await client.chat.completions.create(
                    model=MODEL, messages=messages, max_tokens=MOST_TOKENS, seed=7, **options
                )
            choice = answer.choices[0]
            calls = choice.message.tool_calls
            text = calls[0].function.arguments if calls else choice.message.content
            if choice.finish_reason == "length" and has_no_end(schema):
                return name, text
            try:
                jsonschema.validate(json.loads(text), schema)
            except (ValueError, jsonschema.ValidationError) as error:
                raise SystemExit(f"{name}, {choice.finish_reason}: {text!r} is not by {schema}: {error}") from None
            return name, text

        asked = []
        for temperature in TEMPERATURES:
            for number, schema in enumerate(schemas()):
                form = {"type": "json_schema", "json_schema": {"name": "any", "schema": schema}}
                name = f"schema {number} at {temperature}"
                asked.append(ask(name, schema, temperature=temperature, response_format=form))
            for tool in TOOLS:
                parameters = json.loads(tool.parameters)
                function = {"name": tool.name, "parameters": parameters}
                chosen = {"type": "function", "function": {"name": tool.name}}
                given = {"tools": [{"type": "function", "function": function}], "tool_choice": chosen}
                asked.append(ask(f"{tool.name} at {temperature}", parameters, temperature=temperature, **given))
        print(json.dumps(dict(await asyncio.gather(*asked))))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
