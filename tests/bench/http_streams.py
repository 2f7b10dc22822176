"""Asks a coordinator over HTTP for several answers at once and notes when each token came: `tests.bench.streams`' twin.

`python -m tests.bench.http_streams '{"address": HOST:PORT, "requests": [{"prompt": …, "max_tokens": …}, …]}'` prints
what that prints. It speaks the little HTTP that it needs by itself, so that what is measured is the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.bench.streams import Stream

HEAD = "POST /v1/completions HTTP/1.1\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n"


async def ask_all(address: str, requests: Sequence[dict[str, Any]]) -> list[Stream]:
    """All requests at the same time, each on a connection that is there before."""
    host, _, port = address.rpartition(":")
    connections = [await asyncio.open_connection(host, int(port)) for _ in requests]
    zero_s = time.perf_counter()
    answers = [
        _answer(address, request, *connection, zero_s)
        for request, connection in zip(requests, connections, strict=True)
    ]
    found = await asyncio.gather(*answers)
    for _, writer in connections:
        writer.close()
    return found


async def _answer(
    address: str,
    request: dict[str, Any],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    zero_s: float,
) -> Stream:
    asked = {"temperature": 0, **request, "stream": True, "stream_options": {"include_usage": True}}
    body = json.dumps(asked).encode()
    began_s = time.perf_counter()
    writer.write(HEAD.format(address=address, length=len(body)).encode() + body)
    times_s: list[float] = []
    usage: dict[str, int] = {}
    reason = ""
    while (line := await reader.readline()).strip() != b"data: [DONE]":
        if not line:
            raise RuntimeError("the stream broke off")
        if not line.startswith(b"data: "):
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise RuntimeError(chunk["error"]["message"])
        usage = chunk["usage"] or usage
        for choice in chunk["choices"]:
            reason = choice["finish_reason"] or reason
            times_s += [time.perf_counter() - began_s] if choice["text"] else []
    tokens = usage["completion_tokens"]
    times_s += [times_s[-1]] * (tokens - len(times_s))  # of chunks with several
    return Stream(
        token_times_s=tuple(times_s),
        token_ids=(),
        prompt_tokens=usage["prompt_tokens"],
        finish_reason=reason,
        asked_s=began_s - zero_s,
    )


def main() -> None:
    """Answers the JSON object on the command line."""
    streams = asyncio.run(ask_all(**json.loads(sys.argv[1])))
    print(json.dumps([asdict(stream) for stream in streams]))


if __name__ == "__main__":
    main()
