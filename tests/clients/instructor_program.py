"""`instructor`: a structured answer by JSON schema and by a tool."""

from __future__ import annotations

import instructor
from openai import OpenAI

from tests.clients.questions import BASE, KEY, MODEL, City, equal

ASKED = [{"role": "user", "content": "Tell me of Paris in JSON."}]


def main() -> None:
    client = OpenAI(base_url=f"{BASE}/v1", api_key=KEY)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        patched = instructor.from_openai(client, mode=mode)
        given = {"model": MODEL, "messages": ASKED, "response_model": City, "temperature": 0, "max_tokens": 120}
        equal(isinstance(patched.chat.completions.create(**given, max_retries=0), City), True)


main()
