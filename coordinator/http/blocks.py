"""An answer as blocks in a row, each a thought, a text or a call, for the APIs that tell answers in items."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from layerline.answer import AnswerItem, Finished, Piece, TokenLikelihood


@dataclass(kw_only=True, slots=True)
class Block:
    """Number `number` of an answer, from 0, of one of the kinds of a `Piece`.

    `text` is what was said or thought so far, or the arguments of the call `call_id` of the tool `name`.
    """

    number: int
    kind: str
    call_id: str = ""
    name: str = ""
    text: str = ""
    likelihoods: list[TokenLikelihood] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockBegun:
    """A block begins, and is empty."""

    block: Block


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockGrown:
    """A block has more text, and how likely its tokens were, if that was asked for."""

    block: Block
    text: str
    likelihoods: tuple[TokenLikelihood, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockEnded:
    """A block is whole."""

    block: Block


BlockEvent = BlockBegun | BlockGrown | BlockEnded | Finished


async def block_events(items: AsyncGenerator[AnswerItem, None]) -> AsyncGenerator[BlockEvent, None]:
    """One answer's blocks as they come, and how it ended; an answer without any has an empty text."""
    current: Block | None = None
    held: tuple[TokenLikelihood, ...] = ()  # of tokens that have no text yet
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Piece):
                following = _following(current, item)
                if following is not current:
                    if current:
                        yield BlockEnded(block=current)
                    current = following
                    if current:
                        yield BlockBegun(block=current)
                text, likelihoods = item.tool_call.arguments if item.tool_call else item.text, held + item.likelihoods
                held = () if current else likelihoods
                if current and (text or likelihoods):
                    current.text += text
                    current.likelihoods += likelihoods
                    yield BlockGrown(block=current, text=text, likelihoods=likelihoods)
            elif isinstance(item, Finished):
                if current is None:
                    current = Block(number=0, kind="text", likelihoods=list(held))
                    yield BlockBegun(block=current)
                yield BlockEnded(block=current)
                yield item


def _following(current: Block | None, piece: Piece) -> Block | None:
    """The block that a piece belongs to: the current one, or one that it begins."""
    begins_call = piece.tool_call is not None and bool(piece.tool_call.id)
    if current and current.kind == piece.kind and not begins_call:
        return current
    if piece.tool_call is None and not piece.text:
        return current  # only token ids, as of a marker
    call = piece.tool_call
    number = current.number + 1 if current else 0
    return Block(number=number, kind=piece.kind, call_id=call.id if call else "", name=call.name if call else "")


async def blocks_of(items: AsyncGenerator[AnswerItem, None]) -> tuple[list[Block], Finished]:
    """All blocks of one answer, and how it ended."""
    blocks, finished = [], None
    async for event in block_events(items):
        if isinstance(event, BlockEnded):
            blocks.append(event.block)
        elif isinstance(event, Finished):
            finished = event
    assert finished is not None, "an answer ends with what finished it, or with an error"
    return blocks, finished
