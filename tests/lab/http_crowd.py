"""Many clients of a coordinator's HTTP at once, some of which leave and some of which do not read.

`python -m tests.lab.http_crowd '{"url": …, "clients": …, "seconds": …, "idle": …}'` prints what became of them as one
JSON object.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from layerline.addresses import split_address

PATIENCE_S = 90.0
BODY: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "stream": True}
HEAD = "POST /v1/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"


@dataclass(kw_only=True, slots=True)
class Found:
    """What became of the requests: how many by status, how many streams ended as they must, and who left.

    `different` are answers that were not the one that all must get; `refusals_s` are the times to a 429.
    """

    statuses: dict[int, int]
    whole: int
    left: int
    unread: int
    different: int
    refusals_s: list[float]


class Crowd:
    """So many clients, each of which asks again when it has its answer, until the time is over."""

    def __init__(self, url: str, seconds: float) -> None:
        self._address = url.partition("//")[2]
        self._seconds = seconds
        self._statuses: Counter[int] = Counter()
        self._texts: Counter[str] = Counter()
        self._left = self._unread = 0
        self._refusals_s: list[float] = []

    async def run(self, clients: int, idle: int) -> Found:
        """All of them, beside so many connections that say nothing."""
        loop = asyncio.get_running_loop()
        self._until_s = loop.time() + self._seconds
        silent = [await asyncio.open_connection(*split_address(self._address)) for _ in range(idle)]
        async with asyncio.timeout(self._seconds + PATIENCE_S):
            await asyncio.gather(*(self._client(number) for number in range(clients)))
        for _, writer in silent:
            writer.close()
        usual = self._texts.most_common(1)[0][0] if self._texts else ""
        return Found(
            statuses=dict(self._statuses),
            whole=self._texts[usual],
            left=self._left,
            unread=self._unread,
            different=sum(self._texts.values()) - self._texts[usual],
            refusals_s=self._refusals_s,
        )

    async def _client(self, number: int) -> None:
        chance = random.Random(number)
        loop = asyncio.get_running_loop()
        while loop.time() < self._until_s:
            leaves, reads = number % 3 == 0, number % 10 != 1
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._ask(chance, leaves=leaves, reads=reads)

    async def _ask(self, chance: random.Random, *, leaves: bool, reads: bool) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        body = json.dumps(BODY)
        reader, writer = await asyncio.open_connection(*split_address(self._address), limit=1 << 20)
        try:
            writer.write((HEAD.format(address=self._address, length=len(body)) + body).encode())
            if leaves:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(chance.random() * 2):
                        await reader.read()
                self._left += 1
                writer.transport.abort()
                return
            if not reads:
                self._unread += 1
                await asyncio.sleep(min(5.0, max(0.0, self._until_s - loop.time())))
                return
            status = int((await reader.readline()).split()[1])
            self._statuses[status] += 1
            if status == 429:
                self._refusals_s.append(loop.time() - began_s)
                await asyncio.sleep(chance.random())
            data = await reader.read()
            if status == 200:
                self._texts[_text(data)] += 1
        finally:
            writer.close()


def _text(data: bytes) -> str:
    """The text of a stream of completions; "cut" for one without its end."""
    lines = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]":
        return "cut"
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1])


def main() -> None:
    """Does as the JSON object on the command line says."""
    told = json.loads(sys.argv[1])
    found = asyncio.run(Crowd(told["url"], told["seconds"]).run(told["clients"], told["idle"]))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
