"""OpenAI's API over healthy nodes of this process: by its own client, and by hand where that refuses to be wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import openai
import pytest

from coordinator.coordinator import Coordinator
from layerline.models.card import ModelCard
from tests.fakes.coordinators import prepared, split, two_nodes
from tests.fakes.echo_stage import LIKELIEST, echo_score
from tests.fakes.http_program import Program, http_of
from tests.fakes.node_service import FakeNode

pytestmark = pytest.mark.usefixtures("nothing_left_over")

CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
CHATS, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


@asynccontextmanager
async def served(card: ModelCard, **settings: Any) -> AsyncIterator[tuple[Program, Coordinator, list[FakeNode]]]:
    async with two_nodes(card) as (coordinator, nodes):
        await prepared(coordinator, split("a", "b"))
        async with http_of(coordinator, **settings) as program:
            yield program, coordinator, nodes


def client_of(program: Program) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{program.url}/v1", api_key="none", max_retries=0)


async def test_the_client_gets_what_it_asks_for(card: ModelCard) -> None:
    async with served(card) as (program, _, _), client_of(program) as client:
        (model,) = [each async for each in client.models.list()]
        assert (await client.models.retrieve(model.id)).id == model.id
        whole = await client.chat.completions.create(**CHAT, n=2)
        assert [choice.index for choice in whole.choices] == [0, 1]
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 8
        assert whole.choices[0].finish_reason == "length"
        text = await client.completions.create(model="tiny", prompt="a", max_tokens=4, temperature=0)
        assert text.choices[0].text == "bcde"
        both = await client.completions.create(model="tiny", prompt=["a", "b"], max_tokens=2, n=2, temperature=0)
        assert [(choice.index, choice.text) for choice in both.choices] == [
            (0, "bc"),
            (1, "bc"),
            (2, "cd"),
            (3, "cd"),
        ]
        stream = await client.completions.create(
            model="tiny", prompt=["a", "b"], max_tokens=3, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        parts = dict.fromkeys((0, 1), "")
        for chunk in chunks:
            for choice in chunk.choices:
                parts[choice.index] += choice.text
        assert parts == {0: "bcd", 1: "cde"}
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 6
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("another/one")
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="another", prompt="a")


async def test_a_stream_of_chat_is_as_openai_has_it(card: ModelCard) -> None:
    async with served(card) as (program, _, _):
        asked = {**CHAT, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        got = await program.post(CHATS, asked)
        assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, done = got.events
        assert done == "[DONE]"
        chunks = [json.loads(each) for each in events]
        assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
        assert len({chunk["id"] for chunk in chunks}) == 1
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
        assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
        assert chunks[-2]["choices"][0]["finish_reason"] == "length"
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["completion_tokens"] == 4
        assert all(chunk["usage"] is None for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("change", "param", "word"),
    [
        ({"temprature": 1}, "temprature", "Did you mean 'temperature'?"),
        ({"temperature": True}, "temperature", "valid number"),
        ({"temperature": "1"}, "temperature", "valid number"),
        ({"temperature": 101}, "temperature", "must be a number from 0 to 100"),
        ({"max_tokens": 1 << 70}, "max_tokens", "must be a whole number"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"max_tokens": 1.5}, "max_tokens", "integer"),
        ({"seed": 1 << 70}, "seed", "64 bits"),
        ({"n": 17}, "n", "from 1 to 16"),
        ({"stop": [""]}, "stop", "none empty"),
        ({"messages": []}, "messages", "empty"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role", "Input should be"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "string"),
        ({"messages": [{"role": "user", "content": "a", "colour": 1}]}, "messages[0].colour", "Unknown field"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
            "text alone",
        ),
        ({"tools": [{"type": "web_search", "function": {"name": "f"}}]}, "tools[0].type", "of its own"),
        ({"tool_choice": "required"}, "tool_choice", "needs tools"),
        ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "not a token id"),
        ({"logit_bias": {"0000000000000000000028": 1}}, "logit_bias", "not a token id"),
        ({"logit_bias": {"999999": 1}}, None, "logit_bias has token 999999"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "missing"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "for streams"),
        ({"modalities": ["audio"]}, "modalities", "text alone"),
        ({"messages": None}, "messages", "list"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
        ({"min_tokens": 9}, "min_tokens", "at most max_tokens"),
        ({"reasoning_effort": "wild"}, "reasoning_effort", "Input should be"),
        ({"chat_template_kwargs": {"messages": []}}, None, "messages is what the coordinator tells"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    shared: Program, change: dict[str, Any], param: str | None, word: str
) -> None:
    got = await shared.post(CHATS, {**CHAT, **change})
    assert (got.status, got.error["param"], got.error["type"]) == (400, param, "invalid_request_error")
    assert word in got.error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"model": "tiny"}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "a"}], "metadata": ' + b"[" * 100 + b"]" * 100 + b"}",
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
async def test_bodies_that_are_none_are_refused(shared: Program, body: bytes) -> None:
    got = await shared.post(CHATS, body)
    assert got.status == 400
    assert set(got.error) == {"message", "type", "param", "code"}


@pytest.fixture
async def shared(card: ModelCard) -> AsyncIterator[Program]:
    async with served(card) as (program, _, _):
        yield program


async def test_nothing_is_at_other_places(shared: Program) -> None:
    assert (await shared.get("/v1/chat/completions")).status == 405
    got = await shared.get("/v1/nothing")
    assert (got.status, got.error["message"]) == (404, "There is nothing at /v1/nothing.")
    assert (await shared.get("/version")).json.keys() == {"version"}
    assert b"layerline_model_loaded 1.0" in (await shared.get("/metrics")).body
    assert (await shared.get("/health")).json["status"] == "ok"


async def test_text_becomes_tokens_and_text_again(shared: Program) -> None:
    tokens = (await shared.post("/tokenize", {"prompt": "abc"})).json
    assert tokens["count"] == len(tokens["tokens"]) == 3
    assert (await shared.post("/detokenize", {"tokens": tokens["tokens"]})).json == {"prompt": "abc"}
    assert (await shared.post("/tokenize", {})).status == 400
    assert (await shared.post("/tokenize", {"prompt": "a" * 500})).json["count"] == 500, "more than the context"
    assert (await shared.post("/detokenize", {"tokens": [10**6]})).status == 400


async def test_many_prompts_are_answered_some_at_a_time(shared: Program) -> None:
    for stream in (False, True):
        got = await shared.post(COMPLETIONS, {"prompt": ["a"] * 100, "max_tokens": 1, "stream": stream})
        assert got.status == 200
        assert b"error" not in got.body


async def test_a_client_that_leaves_is_cancelled(card: ModelCard, caplog: pytest.LogCaptureFixture) -> None:
    async with served(card) as (program, coordinator, _):
        for stream in (True, False):
            body = json.dumps({"model": "tiny", "prompt": "a", "max_tokens": 60, "stream": stream}).encode()
            reader, writer = await program.begin("POST", COMPLETIONS, body, {})
            if stream:
                await reader.readuntil(b"data: ")
            writer.transport.abort()
            async with asyncio.timeout(5):
                await program.activity._idle.wait()
        report = coordinator.stats()
        assert report is not None
        assert report.sequences.decoding == report.sequences.waiting == 0
    assert caplog.records == []


async def test_draining_finishes_what_runs_and_takes_nothing_new(card: ModelCard) -> None:
    async with served(card) as (program, _, _):
        asked = {"model": "tiny", "prompt": "a", "max_tokens": 20, "temperature": 0}
        running = asyncio.create_task(program.post(COMPLETIONS, asked))
        while program.activity._idle.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        await program.activity.drain(10)
        assert (await running).status == 200
        refused = await program.post(COMPLETIONS, asked)
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert (await program.get("/health")).status == 503


async def test_an_echo_tells_how_likely_the_prompt_was(shared: Program) -> None:
    asked = {"model": "tiny", "prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 1}
    got = (await shared.post(COMPLETIONS, asked)).json
    (choice,) = got["choices"]
    assert (choice["text"], choice["logprobs"]["tokens"]) == ("abc", ["a", "b", "c"])
    ids = (await shared.post("/tokenize", {"prompt": "abc"})).json["tokens"]
    told = [None, *(echo_score(before, id_) for before, id_ in pairwise(ids))]
    assert choice["logprobs"]["token_logprobs"] == told
    best = (await shared.post("/detokenize", {"tokens": [LIKELIEST]})).json["prompt"]
    assert choice["logprobs"]["top_logprobs"] == [None, {best: -0.5}, {best: -0.5}]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]
    assert got["usage"]["completion_tokens"] == 0
    one = (await shared.post(COMPLETIONS, {**asked, "prompt": "a"})).json["choices"][0]["logprobs"]
    assert (one["tokens"], one["token_logprobs"]) == (["a"], [None])
    echoed = await shared.post(COMPLETIONS, {**asked, "max_tokens": 1, "logprobs": None})
    assert echoed.json["choices"][0]["text"] == "abcd"


async def test_texts_have_embeddings(shared: Program) -> None:
    async with client_of(shared) as client:
        found = await client.embeddings.create(model="tiny", input=["ab", "abcd"])  # as base64, which it reads
        assert [each.index for each in found.data] == [0, 1]
        assert found.usage.prompt_tokens == 6
        assert [round(sum(x * x for x in each.embedding), 4) for each in found.data] == [1.0, 1.0]
    asked = {"input": [97, 98], "normalise": False}
    mean = (await shared.post(EMBEDDINGS, asked)).json["data"][0]["embedding"]
    last = (await shared.post(EMBEDDINGS, {**asked, "pooling": "last"})).json["data"][0]["embedding"]
    assert (mean, last) == ([97.5, 1.0], [98.0, 1.0])
    short = (await shared.post(EMBEDDINGS, {**asked, "dimensions": 1})).json["data"][0]["embedding"]
    assert short == [97.5]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"dimensions": 3}, "dimensions is 3"),
        ({"dimensions": 0}, "must be at least 1"),
        ({"input": []}, "from 1 to 2048"),
        ({"input": ""}, "empty"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [99999]}, "token"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"truncate": True}, "Unknown field 'truncate'"),
    ],
)
async def test_embeddings_that_cannot_be_are_refused(shared: Program, changes: dict[str, Any], word: str) -> None:
    got = await shared.post(EMBEDDINGS, {"input": "ab", **changes})
    assert got.status == 400
    assert word in got.error["message"]
