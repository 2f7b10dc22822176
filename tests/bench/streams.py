"""Asks a coordinator for several answers at once and notes when each token came. Runs beside the coordinator.

`python -m tests.bench.streams '{"address": …, "requests": [{…}, …], "beside": [{…}, …], "lead_tokens": …}'` prints
one JSON list, an item a request. The requests are arguments of `AsyncClient.generate` or, with `messages`, of
`AsyncClient.chat`. Those of `beside` are made first; once each has `lead_tokens` the others are made, and when these
are answered those are left.
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

LEFT = "left"  # how an answer ended that was not waited for


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """One answer as its asker saw it: seconds since it was asked for, at which each token had come.

    `asked_s` is when that was, in seconds since the first was asked for.
    """

    token_times_s: tuple[float, ...]
    token_ids: tuple[int, ...]
    prompt_tokens: int
    finish_reason: str
    asked_s: float = 0.0

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

    @property
    def times_s(self) -> tuple[float, ...]:
        """When each token had come, in seconds since the first answer was asked for."""
        return tuple(self.asked_s + time_s for time_s in self.token_times_s)


class _Asking:
    """One request. `led` is set once it has `lead_tokens`, or has ended."""

    def __init__(self, client: AsyncClient, request: dict[str, Any], lead_tokens: int = 0) -> None:
        ask: Any = client.chat if "messages" in request else client.generate
        self._answer = ask(**request, stream=True)
        self._lead_tokens = lead_tokens
        self.led = asyncio.Event()

    async def run(self, zero_s: float) -> Stream:
        """The answer, its times counted from `zero_s`; what has come of it if it is left."""
        times_s: list[float] = []
        token_ids: list[int] = []
        began_s = time.perf_counter()
        try:
            async for piece in self._answer:
                times_s += [time.perf_counter() - began_s] * len(piece.token_ids)
                token_ids += piece.token_ids
                if len(token_ids) >= self._lead_tokens:
                    self.led.set()
        finally:
            self.led.set()
        finished = self._answer.finished
        return Stream(
            token_times_s=tuple(times_s),
            token_ids=tuple(token_ids),
            prompt_tokens=finished.usage.prompt_tokens if finished else 0,
            finish_reason=finished.finish_reason if finished else LEFT,
            asked_s=began_s - zero_s,
        )

    def leave(self) -> None:
        """No more of it is wanted."""
        self._answer.close()


def streams_from_json(text: str) -> tuple[Stream, ...]:
    """The streams that this program printed."""
    return tuple(Stream(**fields) for fields in json.loads(text))


async def ask_all(
    address: str, requests: Sequence[dict[str, Any]], beside: Sequence[dict[str, Any]] = (), lead_tokens: int = 0
) -> list[Stream]:
    """All `requests` at the same time, and after theirs the answers to those `beside`."""
    async with AsyncClient(address) as client, asyncio.TaskGroup() as group:
        zero_s = time.perf_counter()
        running = [_Asking(client, request, lead_tokens) for request in beside]
        answers_beside = [group.create_task(asking.run(zero_s)) for asking in running]
        for asking in running:
            await asking.led.wait()
        answers = await asyncio.gather(*(_Asking(client, request).run(zero_s) for request in requests))
        for asking in running:
            asking.leave()
        return [*answers, *[await answer for answer in answers_beside]]


def main() -> None:
    """Answers the JSON object on the command line."""
    streams = asyncio.run(ask_all(**json.loads(sys.argv[1])))
    print(json.dumps([asdict(stream) for stream in streams]))


if __name__ == "__main__":
    main()
