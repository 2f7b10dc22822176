"""A coordinator that gives the same answer to everything, for the forms in which HTTP tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from coordinator.coordinator import Coordinator
from layerline.answer import Alternative, AnswerItem, Finished, Piece, Timings, TokenLikelihood, ToolCallPiece, Usage
from layerline.errors import NodeLostError
from layerline.reports import CoordinatorFacts, ModelsReport, NodesReport
from layerline.requests import GenerateRequest
from layerline.version import WIRE_VERSION, __version__
from tests.fakes.http_program import Program, http_of

FACTS = CoordinatorFacts(name="fake", version=__version__, wire_version=WIRE_VERSION, model="tiny", address="")
USAGE = Usage(prompt_tokens=9, completion_tokens=8, cached_tokens=4, thinking_tokens=2)


def finished(reason: str = "stop", stopped_by: str = "") -> Finished:
    """How it ends."""
    return Finished(
        finish_reason=reason,
        usage=USAGE,
        timings=Timings(ttft_s=0.1, prefill_tokens_per_s=1.0, decode_tokens_per_s=1.0),
        plan=(),
        seed=1,
        stopped_by=stopped_by,
    )


def said(text: str, kind: str = "text", log_probability: float | None = None) -> Piece:
    """A piece of one token."""
    likely: tuple[TokenLikelihood, ...] = ()
    if log_probability is not None:
        token = Alternative(token_id=1, text=text.encode(), log_probability=log_probability)
        likely = (TokenLikelihood(token=token, likeliest=(token,)),)
    return Piece(text=text, token_ids=(1,), kind=kind, likelihoods=likely)


def called(call: int, name: str, *arguments: str) -> list[Piece]:
    """The pieces of a call."""
    first = ToolCallPiece(call=call, id=f"call_{call}", name=name)
    parts = [first, *(ToolCallPiece(call=call, arguments=each) for each in arguments)]
    return [Piece(text="", token_ids=(), kind="tool_call", tool_call=part) for part in parts]


class ScriptedCoordinator:
    """`items` are its answer; a pause comes after the first, an exception in their place is raised."""

    serves = True
    state = "serving"
    loading = last_plan = None
    context_tokens = 100

    def __init__(self, items: Sequence[AnswerItem | Exception]) -> None:
        self.items = items
        self.asked: list[GenerateRequest] = []

    def facts(self) -> CoordinatorFacts:
        """Who this is."""
        return FACTS

    def stats(self) -> None:
        """None."""

    async def look(self, deadline_s: float) -> tuple[NodesReport, ModelsReport]:
        """Nothing."""
        return NodesReport(nodes=(), searched=()), ModelsReport(models=())

    async def prompt_ids(self, request: GenerateRequest) -> tuple[int, ...]:
        """Nine."""
        return tuple(range(USAGE.prompt_tokens))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AnswerItem, None]:
        """The answer."""
        self.asked.append(request)
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item
            await asyncio.sleep(0)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"nobody asks for {name} here")


ANSWER: list[AnswerItem | Exception] = [
    said("I th", "thinking"),
    said("ink.", "thinking"),
    said("Well, ", log_probability=-0.5),
    said("so.", log_probability=-0.25),
    *called(0, "weather", '{"city": ', '"Paris"}'),
    *called(1, "now", "{}"),
    finished("tool_calls"),
]
TEXT: list[AnswerItem | Exception] = [said("a"), said("b"), finished("stop", stopped_by="END")]
LOST = NodeLostError("The node attic is lost.", node="attic")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@asynccontextmanager
async def scripted(items: Sequence[AnswerItem | Exception]) -> AsyncIterator[tuple[Program, ScriptedCoordinator]]:
    """HTTP of one that answers so, for the time of the block."""
    coordinator = ScriptedCoordinator(items)
    async with http_of(cast("Coordinator", coordinator)) as program:
        yield program, coordinator
