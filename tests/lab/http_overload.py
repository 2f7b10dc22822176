"""More requests than a coordinator can answer, over HTTP, at a steady rate: how soon the others are refused.

`python -m tests.lab.http_overload '{"url": …, "per_s": …, "seconds": …}'` prints what became of them as one JSON
object. Times of refusals count once the first came, which is when the queue is full.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from layerline.addresses import split_address

BODY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
PATIENCE_S = 120.0


@dataclass(kw_only=True, slots=True)
class Found:
    """How many requests had which status, after how many ms each was refused, and what the answers were.

    `without_retry` are refusals that do not say when to come back; `answers` counts unlike ones.
    """

    statuses: dict[int, int]
    refusals_ms: list[float]
    without_retry: int
    answers: int


class Overload:
    """Requests to the server at `url`, whatever becomes of those before."""

    def __init__(self, url: str) -> None:
        self._address = url.partition("//")[2]
        self._statuses: Counter[int] = Counter()
        self._refusals_ms: list[float] = []
        self._without_retry = 0
        self._answers: set[str] = set()

    async def run(self, per_s: float, seconds: float) -> Found:
        """So many a second for so long."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        tasks = []
        for number in range(int(per_s * seconds)):
            await asyncio.sleep(max(0.0, began_s + number / per_s - loop.time()))
            tasks.append(asyncio.create_task(self._ask()))
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*tasks)
        return Found(
            statuses=dict(self._statuses),
            refusals_ms=self._refusals_ms,
            without_retry=self._without_retry,
            answers=len(self._answers),
        )

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        body = json.dumps(BODY)
        reader, writer = await asyncio.open_connection(*split_address(self._address))
        asked_s = loop.time()
        try:
            writer.write((HEAD.format(address=self._address, length=len(body)) + body).encode())
            status = int((await reader.readline()).split()[1])
            came_s = loop.time()
            head, _, data = (await reader.read()).partition(b"\r\n\r\n")
            self._statuses[status] += 1
            if status == 429:
                self._refusals_ms.append(1e3 * (came_s - asked_s))
                self._without_retry += b"retry-after: " not in head.lower()
            elif status == 200:
                self._answers.add(json.loads(data)["choices"][0]["text"])
        finally:
            writer.close()


def main() -> None:
    """Does as the JSON object on the command line says."""
    told = json.loads(sys.argv[1])
    print(json.dumps(asdict(asyncio.run(Overload(told["url"]).run(told["per_s"], told["seconds"])))))


if __name__ == "__main__":
    main()
