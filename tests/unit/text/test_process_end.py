"""The end of a text process while requests are worked on and wait: all are told, and no child is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.text.frames import Message
from coordinator.text.process import TextProcess
from layerline.errors import NoCoordinatorError

DEADLINE_S = 5.0


class Children(list["Child"]):
    """Those that were started; `started` is set with the first."""

    def __init__(self) -> None:
        self.started = asyncio.Event()


class Child:
    """A child that takes requests and never answers, until it is killed."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.stdin = self
        self.stdout = asyncio.StreamReader()

    def write(self, data: bytes) -> None:
        pass

    async def drain(self) -> None:
        pass

    def kill(self) -> None:
        self.returncode = -9

    async def communicate(self) -> None:
        pass


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> Children:
    """The children that are started from now on."""
    children = Children()

    async def start(*words: str, **options: Any) -> Child:
        children.append(Child())
        children.started.set()
        return children[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return children


def setup() -> Message:
    return {}


def asking(text: TextProcess) -> asyncio.Task[Message]:
    return asyncio.create_task(text.ask({"task": "tokens"}, deadline_s=DEADLINE_S))


async def test_all_who_ask_are_told_that_the_model_has_left_and_no_other_child_is_started(children: Children) -> None:
    async with asyncio.timeout(DEADLINE_S):
        async with TextProcess(setup) as text:
            asked = [asking(text) for _ in range(4)]
            await children.started.wait()
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [NoCoordinatorError] * 4
    assert "The model has left meanwhile. Try again" in str(outcomes[0])
    assert [child.returncode for child in children] == [-9]


async def test_who_asks_after_the_end_is_told_the_same(children: Children) -> None:
    async with TextProcess(setup) as text:
        pass
    for _ in range(2):
        with pytest.raises(NoCoordinatorError, match="has left"):
            async with asyncio.timeout(DEADLINE_S):
                await asking(text)
    assert children == []


async def test_an_asker_that_is_itself_cancelled_is_cancelled_also_when_the_model_leaves(children: Children) -> None:
    async with TextProcess(setup) as text:
        asked = asking(text)
        await children.started.wait()
        assert text._exchanging is not None
        text._exchanging.add_done_callback(lambda _: asked.cancel())  # before the asker learns of its end
    with pytest.raises(asyncio.CancelledError):
        await asked
