"""Asks a coordinator for several answers at once and notes when each token came. Runs beside the coordinator.

`python -m tests.bench.streams '{"address": …, "requests": [{…}, …]}'` prints one JSON list, an item a request.
The requests are arguments of `AsyncClient.generate` or, with `messages`, of `AsyncClient.chat`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from layerline import AsyncClient


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One answer as its asker saw it: seconds since it was asked for, at which each token had come."""

    token_times_s: tuple[float, ...]
    token_ids: tuple[int, ...]
    prompt_tokens: int
    finish_reason: str

    @property
    def ttft_s(self) -> float:
        """Time to the first token, in seconds."""
        return self.token_times_s[0]

    @property
    def decode_tokens_per_s(self) -> float:
        """Tokens after the first over the time they took."""
        times_s = self.token_times_s
        after_first = sum(time_s > times_s[0] for time_s in times_s)
        return after_first / (times_s[-1] - times_s[0])


def streams_from_json(text: str) -> tuple[Stream, ...]:
    """The streams that this program printed."""
    return tuple(Stream(**fields) for fields in json.loads(text))


async def ask_all(address: str, requests: Sequence[dict[str, Any]]) -> list[Stream]:
    """All `requests` at the same time."""
    async with AsyncClient(address) as client:
        return await asyncio.gather(*(_ask(client, request) for request in requests))


async def _ask(client: AsyncClient, request: dict[str, Any]) -> Stream:
    ask: Any = client.chat if "messages" in request else client.generate
    times_s: list[float] = []
    token_ids: list[int] = []
    began_s = time.perf_counter()
    async with ask(**request, stream=True) as stream:
        async for piece in stream:
            times_s += [time.perf_counter() - began_s] * len(piece.token_ids)
            token_ids += piece.token_ids
    finished = stream.finished
    return Stream(
        token_times_s=tuple(times_s),
        token_ids=tuple(token_ids),
        prompt_tokens=finished.usage.prompt_tokens,
        finish_reason=finished.finish_reason,
    )


def main() -> None:
    """Answers the JSON object on the command line."""
    asked = json.loads(sys.argv[1])
    streams = asyncio.run(ask_all(asked["address"], asked["requests"]))
    print(json.dumps([asdict(stream) for stream in streams]))


if __name__ == "__main__":
    main()
