"""What clients get of a coordinator over healthy nodes: answers, one at a time and many; one client or several."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from layerline.chat import Message
from layerline.errors import (
    ModelUnsupportedError,
    PromptTooLongError,
    RequestError,
)
from layerline.models.card import ModelCard
from layerline.plan_request import PlanRequest
from layerline.reports import Announcement
from layerline.requests import GenerateRequest
from tests.fakes.coordinators import answer, events_of, joined, prepared, split, two_nodes
from tests.fakes.losses import comes_to, epoch_of
from tests.fakes.node_service import MODEL, tiny_card

# --- answers


async def test_an_answer_without_any_preparation(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        with pytest.raises(RequestError, match="No model is loaded"):
            await answer(coordinator)
        completion = await answer(coordinator, model="tiny", max_tokens=4)
        assert (completion.text, completion.finished.finish_reason) == ("bcde", "length")
        assert completion.finished.usage.prompt_tokens == 1
        assert completion.finished.usage.completion_tokens == 4
        assert len(completion.token_ids) == 4
        assert completion.finished.plan[0].first_layer == 0


async def test_a_model_whose_pipeline_was_lost_is_the_same_again(
    card: ModelCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tiny_card(tmp_path)
    path = str(tmp_path / MODEL)
    async with two_nodes(card) as (coordinator, nodes):
        request = PlanRequest(model=path, context_tokens=128, layers=split("b", "a").layers)
        await prepared(coordinator, request)
        assert nodes[0].worker is not None
        for name in ("", "tiny", MODEL, path):
            epoch = epoch_of(coordinator)
            await nodes[0].worker.die()
            await comes_to(coordinator, "serving", after_epoch=epoch)
            again = await answer(coordinator, max_tokens=2, model=name)
            assert [stage.node for stage in again.finished.plan] == ["b", "a"]
        assert (await coordinator.plan(PlanRequest(model="tiny"))).context_tokens == 128


async def test_a_request_for_another_model_than_the_one_in_service(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        with pytest.raises(RequestError, match=r"serves tiny\.gguf"):
            await answer(coordinator, model="other")


@pytest.mark.parametrize("name", ["a\nb", "x" * 300])
async def test_a_model_name_that_can_be_none_is_the_requests_fault(card: ModelCard, name: str) -> None:
    async with two_nodes(card) as (coordinator, _):
        with pytest.raises(RequestError, match="model name"):
            await answer(coordinator, model=name)


async def test_stop_strings_and_end_tokens(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        stopped = await answer(coordinator, stop=("fg", "zzz"))
        assert (stopped.text, stopped.finished.finish_reason) == ("bcde", "stop")
        assert stopped.finished.usage.completion_tokens == 6
        assert len(stopped.token_ids) == 6
        async with aclosing(coordinator.generate(GenerateRequest(token_ids=(1,)))) as items:
            ended = joined([item async for item in items])
        assert (ended.text, ended.token_ids, ended.finished.finish_reason) == ("", (2,), "stop")


async def test_seeds_are_told_and_kept(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        assert (await answer(coordinator, max_tokens=1, seed=2**64 - 1)).finished.seed == 2**64 - 1
        assert (await answer(coordinator, max_tokens=1, seed=0)).finished.seed == 0
        chosen = {(await answer(coordinator, max_tokens=1)).finished.seed for _ in range(3)}
        assert len(chosen) == 3


async def test_several_answers_to_one_prompt(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        first = await answer(coordinator, prompt="a" * 40, max_tokens=4, seed=2**64 - 2, n=3)
        answers = (first, *first.others)
        assert [one.text for one in answers] == ["bcde"] * 3
        assert [one.finished.index for one in answers] == [0, 1, 2]
        assert [one.finished.seed for one in answers] == [2**64 - 2, 2**64 - 1, 0]
        assert [one.finished.usage.prompt_tokens for one in answers] == [40, 0, 0]
        assert [one.finished.usage.completion_tokens for one in answers] == [4] * 3
        stopped = await answer(coordinator, stop=("e",), n=2)
        assert [(one.text, one.finished.finish_reason) for one in (stopped, *stopped.others)] == [("bcd", "stop")] * 2


async def test_a_chat_goes_through_the_models_template(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        request = GenerateRequest(messages=(Message(role="user", content="hi"),), max_tokens=1)
        async with aclosing(coordinator.generate(request)) as items:
            completion = joined([item async for item in items])
        assert completion.finished.usage.prompt_tokens > 10


async def test_a_chat_with_a_model_without_a_template(tmp_path: Path) -> None:
    plain = tiny_card(tmp_path, metadata={"tokenizer.chat_template": None})
    async with two_nodes(plain) as (coordinator, _):
        request = GenerateRequest(model="tiny", messages=(Message(role="user", content="hi"),))
        with pytest.raises(ModelUnsupportedError, match="no chat template"):
            await anext(coordinator.generate(request))
        assert (await answer(coordinator, max_tokens=1)).text == "b"


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (GenerateRequest(prompt="a" * 256), PromptTooLongError, "256 tokens; the context holds 256"),
        (GenerateRequest(prompt=""), RequestError, "empty"),
        (GenerateRequest(token_ids=(5, 4000000000)), RequestError, "4000000000 at position 1"),
        (GenerateRequest(prompt="a", stop=("x" * 5000,)), RequestError, "stop string"),
    ],
)
async def test_a_request_that_cannot_be_answered(
    card: ModelCard, wrong: GenerateRequest, kind: type[RequestError], words: str
) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        with pytest.raises(kind, match=words):
            await anext(coordinator.generate(wrong))
        assert (await answer(coordinator, max_tokens=2)).text == "bc"


async def test_a_prompt_in_many_chunks(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        assert (await answer(coordinator, prompt="a" * 250)).text == "bcdefg"


# --- several clients


async def test_two_clients_that_prepare_at_once_load_once(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        first, second = await asyncio.gather(*(events_of(coordinator, split("a", "b")) for _ in range(2)))
        assert first[-1] == second[-1]
        assert second[:-1] == [Announcement(text="Waiting for what is under way.")]
        assert [node.loads for node in nodes] == [1, 1]


async def test_two_clients_that_want_different_things_at_once(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        first, second = await asyncio.gather(
            prepared(coordinator, split("a", "b")), prepared(coordinator, split("b", "a")), return_exceptions=True
        )
        assert not isinstance(first, BaseException)
        assert isinstance(second, RequestError)


async def test_the_second_client_goes_on_where_the_first_one_left(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, nodes):
        waits = asyncio.Event()

        async def wait() -> None:
            await waits.wait()

        nodes[1].hooks["load"] = wait
        first = asyncio.create_task(prepared(coordinator, split("a", "b")))
        await nodes[1].loading.wait()
        second = asyncio.create_task(answer(coordinator, model="tiny", max_tokens=2))
        await asyncio.sleep(0)
        first.cancel()
        waits.set()
        assert (await second).text == "bc"


async def test_a_client_that_reads_slowly_keeps_nobody_waiting(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        async with aclosing(coordinator.prepare(split("a", "b"))) as events:
            await anext(events)  # and no more
            assert (await answer(coordinator, model="tiny", max_tokens=2)).text == "bc"
        assert coordinator.facts().model == MODEL


async def test_many_answers_at_once(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        prompts = "ABCDEFGHIJKLMNOP"
        answers = await asyncio.gather(*(answer(coordinator, prompt=one, max_tokens=8) for one in prompts))
        assert [a.text for a in answers] == ["".join(chr(ord(one) + n) for n in range(1, 9)) for one in prompts]
