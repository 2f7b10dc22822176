"""Texts that a coordinator has scored: tokens and windows, what cannot be scored, who leaves, and what is lost.

The nodes are fakes that score a token by its id and the one before it, behind real services on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.answering.scoring import scored_windows
from coordinator.coordinator import Coordinator
from coordinator.engine import Engine
from coordinator.scheduling.scheduler import Scheduler
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.stats.recorder import Recorder
from layerline.errors import OverloadedError, RequestError, StageFailedError
from layerline.models.card import ModelCard
from layerline.scoring import ScoreRequest, WindowScores
from tests.fakes.coordinators import BOUNDS, answer, coordinator_of, prepared, split, two_nodes
from tests.fakes.driven_engine import driven
from tests.fakes.echo_stage import EchoStage, echo_score
from tests.fakes.memory_ring import memory_ring, route
from tests.fakes.node_service import FakeNode, nodes_of, tiny_card
from tests.fakes.recoveries import at_step
from tests.fakes.schedulers import capacity
from tests.fakes.scores import scores_of

pytestmark = pytest.mark.usefixtures("nothing_left_over")

IDS = tuple(3 + (7 * place) % 250 for place in range(101))  # of which the last one is a window of its own


def expected(token_ids: Sequence[int], window_tokens: int) -> list[tuple[int, tuple[int, ...], tuple[float, ...]]]:
    """(start, ids, scores) of each window."""
    windows = []
    for start in range(0, len(token_ids) - 1, window_tokens):
        ids = tuple(token_ids[start : start + window_tokens])
        windows.append((start + 1, ids[1:], tuple(map(echo_score, ids, ids[1:]))))
    return windows


def told(windows: Sequence[WindowScores]) -> list[tuple[int, tuple[int, ...], tuple[float, ...]]]:
    return [(window.start, window.token_ids, window.log_probabilities) for window in windows]


async def score(coordinator: Coordinator, **asked: Any) -> list[WindowScores]:
    windows, _ = await scores_of(coordinator.score(ScoreRequest(**asked)))
    return windows


def is_idle(coordinator: Coordinator) -> bool:
    report = coordinator.stats()
    assert report is not None
    sequences = report.sequences
    return not (sequences.waiting or sequences.prefilling or sequences.decoding or sequences.leaving)


@pytest.mark.parametrize("window_tokens", [2, 7, 25, 100, 256])
async def test_every_window_is_scored_in_order(card: ModelCard, window_tokens: int) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        windows, finished = await scores_of(coordinator.score(ScoreRequest(token_ids=IDS, window_tokens=window_tokens)))
        assert told(windows) == expected(IDS, window_tokens)
        assert (finished.text_tokens, [stage.node for stage in finished.plan]) == (101, ["a", "b"])
        assert finished.took_s > 0
        assert {window.text_tokens for window in windows} == {101}
        assert is_idle(coordinator)


async def test_a_text_is_tokenised_once_and_the_model_brought_up_for_it(card: ModelCard) -> None:
    text = "hello hé\r\n" * 9
    async with two_nodes(card) as (coordinator, _):
        whole = (await score(coordinator, text=text, window_tokens=256, model="tiny"))[0]
        windows = await score(coordinator, text=text, window_tokens=10)
    assert [window.start for window in windows] == list(range(1, whole.text_tokens, 10))
    of_windows = [id_ for window in windows for id_ in window.token_ids]
    assert of_windows == [id_ for place, id_ in enumerate(whole.token_ids, 1) if place % 10]


async def test_a_text_begins_with_a_bos_where_the_tokenizer_adds_one(tmp_path: Path) -> None:
    card = tiny_card(tmp_path, metadata={"tokenizer.ggml.add_bos_token": True})
    async with two_nodes(card) as (coordinator, _):
        (window, after) = await score(coordinator, text="abcd", window_tokens=3, model="tiny")
        (one,) = await score(coordinator, text="a", window_tokens=3)
    assert (window.text_tokens, window.start, after.start) == (5, 1, 4)
    assert window.log_probabilities[0] == echo_score(1, window.token_ids[0]), "the BOS is what comes before"
    assert one.text_tokens == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"text": ""}, "The text has no token, and the first has none before it"),
        ({"text": "a"}, "The text has 1 token, and"),
        ({"token_ids": (5,)}, "The text has 1 token, and"),
        ({"token_ids": (5, 4000000000)}, "4000000000 at position 1 does not exist"),
        ({"text": "abc", "window_tokens": 257}, "Windows of 257 tokens are wanted; the context holds 256"),
        ({"text": "abc", "model": "other"}, r"serves tiny\.gguf"),
    ],
)
async def test_what_cannot_be_scored_is_the_requests_fault(card: ModelCard, asked: dict[str, Any], words: str) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        with pytest.raises(RequestError, match=words):
            await score(coordinator, **{"window_tokens": 10, **asked})
        assert (await answer(coordinator, max_tokens=2)).text == "bc"


async def test_leaving_early_cancels_all_windows(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        async with aclosing(coordinator.score(ScoreRequest(token_ids=IDS * 20, window_tokens=50))) as events:
            assert isinstance(await anext(events), WindowScores)
        assert (await answer(coordinator, max_tokens=2)).text == "bc"  # what was cancelled is back by then
        assert is_idle(coordinator)


async def test_a_text_and_answers_at_once(card: ModelCard) -> None:
    async with two_nodes(card) as (coordinator, _):
        await prepared(coordinator, split("a", "b"))
        answering = [asyncio.create_task(answer(coordinator, prompt=one, max_tokens=8)) for one in "ABCD"]
        windows = await score(coordinator, token_ids=IDS * 4, window_tokens=40)
        answers = await asyncio.gather(*answering)
    assert told(windows) == expected(IDS * 4, 40)
    assert [one.text for one in answers] == ["".join(chr(ord(one) + n) for n in range(1, 9)) for one in "ABCD"]


async def test_more_windows_than_the_queue_holds(card: ModelCard) -> None:
    bounds = replace(BOUNDS, max_waiting=3)
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes, bounds=bounds) as coordinator:
        await prepared(coordinator, split("a", "b"))
        assert told(await score(coordinator, token_ids=IDS, window_tokens=2)) == expected(IDS, 2)


async def test_a_queue_that_is_full_of_others_refuses_a_text() -> None:
    engine = Engine(Scheduler(capacity(max_waiting=1)), Recorder(route(1)))
    async with engine.answer(lambda number: SequenceRequest(sequence=number, token_ids=(1, 2))):
        with pytest.raises(OverloadedError):
            await anext(scored_windows(engine, IDS, 10))


@pytest.mark.parametrize("place", [0, 1])
async def test_a_text_outlives_a_worker(card: ModelCard, place: int) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await prepared(coordinator, split("a", "b"))
        lost = at_step(3, nodes[place])
        windows = await score(coordinator, token_ids=IDS * 90, window_tokens=50)
        assert lost.is_set()
        assert told(windows) == expected(IDS * 90, 50)
        assert [node.loads for node in nodes] == [1 + (node is nodes[place]) for node in nodes]


async def test_a_text_goes_on_elsewhere_when_its_node_is_gone(card: ModelCard) -> None:
    async with nodes_of(card, "a", "b") as nodes, coordinator_of(nodes) as coordinator:
        await score(coordinator, token_ids=IDS, window_tokens=50, model="tiny")
        (there,) = [node for node in nodes if node.loads]
        lost = at_step(4, there, FakeNode.die)
        windows, finished = await scores_of(coordinator.score(ScoreRequest(token_ids=IDS * 90, window_tokens=50)))
        assert lost.is_set()
        assert told(windows) == expected(IDS * 90, 50)
        assert [stage.node for stage in finished.plan] != [there.name]


async def test_a_window_whose_rows_are_not_numbers_ends_the_text_alone() -> None:
    stages = [EchoStage(last=False), EchoStage(last=True, bad_token=99)]
    engine = Engine(Scheduler(capacity()), Recorder(route(2)))
    async with asyncio.timeout(20), memory_ring(stages) as ring, driven(engine, ring) as broken:
        async with aclosing(scored_windows(engine, (*range(10, 50), 99, *range(50, 90)), 20)) as windows:
            assert [(await anext(windows)).start for _ in range(2)] == [1, 21]
            with pytest.raises(StageFailedError, match="not numbers"):
                await anext(windows)
        sound = [window async for window in scored_windows(engine, IDS, 20)]
    assert told(sound) == expected(IDS, 20)
    assert broken.empty()
