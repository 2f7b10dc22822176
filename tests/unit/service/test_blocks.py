"""The blocks of an answer: thoughts, texts and calls in the order in which they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest

from coordinator.http.blocks import BlockBegun, BlockEnded, BlockEvent, BlockGrown, block_events, blocks_of
from layerline.answer import Alternative, AnswerItem, Finished, Piece, Timings, TokenLikelihood, ToolCallPiece, Usage

FINISHED = Finished(
    finish_reason="stop",
    usage=Usage(prompt_tokens=1, completion_tokens=2),
    timings=Timings(ttft_s=0, prefill_tokens_per_s=0, decode_tokens_per_s=0),
    plan=(),
    seed=1,
)


def piece(kind: str, text: str) -> Piece:
    return Piece(kind=kind, text=text, token_ids=(1,))


def call(number: int, id_: str = "", name: str = "", arguments: str = "") -> Piece:
    part = ToolCallPiece(call=number, id=id_, name=name, arguments=arguments)
    return Piece(kind="tool_call", text="", token_ids=(), tool_call=part)


async def answer(pieces: Sequence[Piece]) -> AsyncGenerator[AnswerItem, None]:
    for each in pieces:
        yield each
    yield FINISHED


def shown(event: BlockEvent) -> str:
    if isinstance(event, Finished):
        return "."
    kind = event.block.name or event.block.kind
    sign = {BlockBegun: "(", BlockEnded: ")"}.get(type(event))
    return f"{sign}{event.block.number}{kind}" if sign else f"+{event.text}" if isinstance(event, BlockGrown) else "?"


@pytest.mark.parametrize(
    ("pieces", "wanted"),
    [
        ((), "(0text )0text ."),
        ((piece("text", ""),), "(0text )0text ."),
        ((piece("text", "a"), piece("text", "b")), "(0text +a +b )0text ."),
        (
            (piece("thinking", "a"), piece("text", "b"), piece("text", "")),
            "(0thinking +a )0thinking (1text +b )1text .",
        ),
        (
            (call(0, "x", "now"), call(0, arguments="{"), call(0, arguments="}"), call(1, "y", "then", "{}")),
            "(0now +{ +} )0now (1then +{} )1then .",
        ),
    ],
)
async def test_blocks_begin_grow_and_end(pieces: Sequence[Piece], wanted: str) -> None:
    assert " ".join([shown(event) async for event in block_events(answer(pieces))]) == wanted


async def test_whole_blocks_have_all_their_text() -> None:
    blocks, finished = await blocks_of(
        answer((piece("thinking", "a"), call(0, "x", "now", "{"), call(0, arguments="}")))
    )
    assert [(block.kind, block.text, block.call_id, block.name) for block in blocks] == [
        ("thinking", "a", "", ""),
        ("tool_call", "{}", "x", "now"),
    ]
    assert finished is FINISHED


async def test_likelihoods_of_a_token_without_text_are_told_with_the_next() -> None:
    def likely(text: bytes) -> TokenLikelihood:
        return TokenLikelihood(token=Alternative(token_id=1, text=text, log_probability=-0.5))

    halves = [
        Piece(text="", token_ids=(1,), likelihoods=(likely(b"\xc3"),)),
        Piece(text="é", token_ids=(2,), likelihoods=(likely(b"\xa9"),)),
    ]
    for pieces in (halves, halves[:1]):
        (block,), _ = await blocks_of(answer(pieces))
        assert len(block.likelihoods) == len(pieces)
