"""Whole answers out of a stream of pieces, for the APIs that tell them whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from layerline.answer import AnswerItem, Finished, Piece, PromptLikelihoods, TokenLikelihood, joined_calls
from layerline.chat import ToolCall


@dataclass(kw_only=True, slots=True)
class Reply:
    """One answer: its text apart from what was thought and which tools were called."""

    index: int
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    likelihoods: list[TokenLikelihood] = field(default_factory=list)
    of_prompt: list[TokenLikelihood | str] = field(default_factory=list)
    finish_reason: str = ""

    @classmethod
    def of(cls, items: Sequence[PromptLikelihoods | Piece], finished: Finished) -> Reply:
        """The answer that `finished` ended."""
        reply = cls(index=finished.index, finish_reason=finished.finish_reason)
        own = [piece for piece in items if isinstance(piece, Piece) and piece.index == finished.index]
        reply.text = "".join(piece.text for piece in own if piece.kind == "text")
        reply.thinking = "".join(piece.text for piece in own if piece.kind == "thinking")
        reply.likelihoods = [likelihood for piece in own for likelihood in piece.likelihoods]
        reply.calls = joined_calls(own)
        for item in items:
            if isinstance(item, PromptLikelihoods):
                reply.of_prompt += [*([item.first.decode(errors="replace")] if item.first else []), *item.likelihoods]
        return reply


@dataclass(frozen=True, kw_only=True, slots=True)
class Replies:
    """All answers to a prompt, in order, and how each ended."""

    replies: tuple[Reply, ...]
    finished: tuple[Finished, ...]

    @classmethod
    async def of(cls, items: AsyncGenerator[AnswerItem, None]) -> Replies:
        """The answers of a stream, once it has ended."""
        pieces: list[PromptLikelihoods | Piece] = []
        finished: list[Finished] = []
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Finished):
                    finished.append(item)
                else:
                    pieces.append(item)
        finished.sort(key=lambda each: each.index)
        return cls(replies=tuple(Reply.of(pieces, each) for each in finished), finished=tuple(finished))


def usage_of(finished: Sequence[Finished]) -> dict[str, Any]:
    """The tokens of all answers, as OpenAI tells them."""
    prompt = sum(each.usage.prompt_tokens for each in finished)
    completion = sum(each.usage.completion_tokens for each in finished)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(each.usage.cached_tokens for each in finished)},
        "completion_tokens_details": {"reasoning_tokens": sum(each.usage.thinking_tokens for each in finished)},
    }
