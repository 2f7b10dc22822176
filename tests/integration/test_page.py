"""The page's routes, and in Chromium an answer that would do harm if it could."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import cast

import pytest

from coordinator.coordinator import Coordinator
from coordinator.http.page_routes import HEADERS
from layerline.answer import AnswerItem
from layerline.models.card import ModelCard
from tests.fakes.coordinators import prepared, split, two_nodes
from tests.fakes.http_program import Program, http_of
from tests.fakes.scripted_coordinator import ScriptedCoordinator, finished, said
from tests.lab.chromium import needs_chromium

pytestmark = pytest.mark.usefixtures("nothing_left_over")

PARTS = [f"/page/{part.name}" for part in Path("coordinator/http/page").iterdir()]
EVENTS = "/page/api/events"
HOSTILE = """# Title

Some **bold** <script>window.ran = 1</script><img src=x onerror="window.ran = 1"> text, **more**.

- one [good](https://example.org/a)
- two [bad](javascript:window.ran=1)
- three ![picture](https://example.org/b.png)

> quoted

| a | b |
|---|---|
| 1 | <iframe src="javascript:1"></iframe> |
| 2 | 3 |

```html
</code></pre><script>window.ran = 1</script>
```

שלום, עולם.
"""


async def test_every_part_of_the_page_is_there_with_its_policy(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _), http_of(coordinator) as program:
        for path in ["/", *PARTS]:
            got = await program.get(path)
            assert got.status == 200, path
            for name, value in HEADERS.items():
                assert got.headers[name.lower()] == value
        assert (await program.get("/page/nothing.js")).status == 404
        assert (await program.get("/page/../app.py")).status == 404


async def events_of(program: Program, count: int) -> list[tuple[str, object]]:
    """The first events of the page's stream."""
    reader, writer = await program.begin("GET", EVENTS, b"", {})
    found: list[tuple[str, object]] = []
    try:
        async with asyncio.timeout(10):
            while len(found) < count:
                line = (await reader.readline()).decode()
                if line.startswith("event: "):
                    data = (await reader.readline()).decode().removeprefix("data: ")
                    found.append((line.split()[1], json.loads(data)))
    finally:
        writer.transport.abort()
    return found


async def test_its_events_tell_how_all_stands(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes), http_of(coordinator) as program:
        (_, history), (_, before) = await events_of(program, 2)
        assert isinstance(history, list)
        assert isinstance(before, dict)
        assert (before["state"], before["plan"], before["stats"]) == ("absent", None, None)
        loads = asyncio.Event()

        async def load() -> None:
            await loads.wait()

        nodes[1].hooks["load"] = load
        preparing = asyncio.create_task(prepared(coordinator, split("a", "b")))
        await nodes[1].loading.wait()
        *_, (_, while_loading) = await events_of(program, 4)
        assert isinstance(while_loading, dict)
        assert while_loading["state"] == "loading"
        told = {node["node"]: (node["done_bytes"], node["total_bytes"]) for node in while_loading["loading"]["nodes"]}
        assert told["b"] == (1, 2)
        loads.set()
        await preparing
        states = [state for name, state in await events_of(program, 5) if name == "state"]
        last = states[-1]
        assert isinstance(last, dict)
        assert last["state"] == "serving"
        assert [stage["node"] for stage in last["plan"]["pipelines"][0]["stages"]] == ["a", "b"]
        assert {node["name"]: node["lost"] for node in last["nodes"]} == {"a": False, "b": False}
        assert [model["name"] for model in last["models"]] == ["tiny.gguf"]
        await nodes[0].die()
        states = [state for name, state in await events_of(program, 6) if name == "state"]
        last = states[-1]
        assert isinstance(last, dict)
        assert {node["name"]: node["lost"] for node in last["nodes"]}["a"]


async def test_a_request_is_stopped_for_whoever_asked(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _), http_of(coordinator) as program:
        await prepared(coordinator, split("a", "b"))
        asked = {"prompt": "a", "max_tokens": 100_000, "stream": True, "ignore_eos": True}
        body = json.dumps(asked).encode()
        reader, writer = await program.begin("POST", "/v1/completions", body, {})
        await reader.readuntil(b"data: ")
        stats = coordinator.stats()
        assert stats is not None
        number = stats.requests[0].number
        assert (await program.post(f"/page/api/requests/{number}/stop", {})).json == {"stopped": number}
        rest = (await reader.read()).decode()
        assert "stopped at the coordinator" in rest
        writer.close()
        assert (await program.post(f"/page/api/requests/{number}/stop", {})).status == 404
        assert (await program.post("/page/api/requests/999/stop", {})).status == 404


async def test_another_model_is_served_in_the_place_of_the_first(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _), http_of(coordinator) as program:
        await prepared(coordinator, split("a", "b"))
        got = await program.post("/page/api/model", {"model": "another"})
        assert got.status == 404
        assert coordinator.facts().model == "tiny.gguf", "it stays where there is no other"
        assert (await program.post("/page/api/model", {})).status == 400
        body = json.dumps({"prompt": "a", "max_tokens": 60, "stream": True, "ignore_eos": True}).encode()
        reader, writer = await program.begin("POST", "/v1/completions", body, {})
        await reader.readuntil(b"data: ")
        got = await program.post("/page/api/model", {"model": "tiny"})
        rest = (await reader.read()).decode()
        writer.close()
        assert "told to serve tiny in the place" in rest or "[DONE]" in rest, "it may have ended before"
        assert got.json == {"model": "tiny.gguf"}
        assert (await program.post("/v1/completions", {"prompt": "a", "max_tokens": 1})).status == 200


@needs_chromium
async def test_an_answer_that_would_do_harm_does_none() -> None:
    items: list[AnswerItem | Exception] = [
        said("Thinking.", "thinking"),
        *(said(part) for part in HOSTILE.partition("<script>")),
        finished(),
    ]
    async with http_of(cast("Coordinator", ScriptedCoordinator(items))) as program:
        words = [sys.executable, "-m", "tests.page.hostile_program", program.url]
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with asyncio.timeout(60):
                _, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0, complaint.decode()


async def test_two_who_switch_at_once_are_served_one_after_the_other(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _), http_of(coordinator) as program:
        await prepared(coordinator, split("a", "b"))
        got = await asyncio.gather(*(program.post("/page/api/model", {"model": "tiny"}) for _ in range(3)))
        assert [each.status for each in got] == [200, 200, 200]
        assert coordinator.wanted is not None
        assert coordinator.facts().model == "tiny.gguf"
