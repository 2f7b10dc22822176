"""What the programs of this folder ask. Each runs as `python -m tests.clients.PROGRAM URL` where its client is."""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel, Field

BASE = sys.argv[1]  # http://HOST:PORT
KEY = "no-key"
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
SYSTEM = "You are a helpful assistant."
QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
MESSAGES: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city.", "parameters": WEATHER},
}


class City(BaseModel):
    """What a structured answer is to be."""

    name: str = Field(max_length=20)
    inhabitants: int = Field(ge=0, le=20_000_000)


def equal(found: object, wanted: object) -> None:
    """Ends the program if `found` is not what is wanted."""
    if found != wanted:
        raise SystemExit(f"found {found!r}, wanted {wanted!r}")


def fits_weather(arguments: str) -> None:
    """Ends the program if `arguments` are not those of the tool."""
    given = json.loads(arguments)
    equal((sorted(given), type(given["city"]), type(given["days"])), (["city", "days"], str, int))
