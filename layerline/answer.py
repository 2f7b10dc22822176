"""What a client gets: the pieces of an answer, how it ended, and the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from layerline.chat import ToolCall
from layerline.checks import require_one_of

PIECE_KINDS = ("text", "thinking", "tool_call")


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """A token in some place, with its text (which may be half a character) and log-probability."""

    token_id: int
    text: bytes
    log_probability: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenLikelihood:
    """How likely a token was where it stands, and the likeliest ones there, in order."""

    token: Alternative
    likeliest: tuple[Alternative, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallPiece:
    """Part of a call to a tool: number `call` of the answer, from 0. `id` and `name` come with its first piece."""

    call: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Text as it is made, and the ids that made it; `text` never ends in half a character.

    `index` says to which of the request's answers it belongs, from 0. What a model thinks before it answers has the
    kind "thinking"; a "tool_call" has no text, and `tool_call` says what it adds. `likelihoods` are those of
    `token_ids` but one that ends the answer, if they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    index: int = 0
    kind: str = "text"
    tool_call: ToolCallPiece | None = None
    likelihoods: tuple[TokenLikelihood, ...] = ()

    def __post_init__(self) -> None:
        require_one_of(self.kind, PIECE_KINDS, "kind")


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptLikelihoods:
    """How likely some neighbouring tokens of the prompt were; of the first, which nothing comes before, only its text.

    They come before the first piece of an answer, if they were asked for, in the order of the prompt.
    """

    first: bytes
    likelihoods: tuple[TokenLikelihood, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of the prompt and of the answer (its end-of-sequence token counts).

    Of several answers to one prompt the first counts it and the others have 0 there, so that sums are right. Of the
    prompt's tokens `cached_tokens` need not be computed; of the answer's, the model thought `thinking_tokens`.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    thinking_tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Time to first token in seconds, and tokens per second of prompt and answer (0 where there was none)."""

    ttft_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """Layers of one node in a plan, inclusive."""

    node: str
    first_layer: int
    last_layer: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """How an answer ended: "stop" (end of sequence or a stop string, `stopped_by`), "length" or "tool_calls".

    `seed` is the one that this answer was drawn with, `index` its number among the request's answers, from 0. The
    request was begun again `losses` times, on the way, in another pipeline, as the one it was in was lost.
    """

    finish_reason: str
    usage: Usage
    timings: Timings
    plan: tuple[StageSummary, ...]
    seed: int
    index: int = 0
    losses: int = 0
    stopped_by: str = ""


AnswerItem = PromptLikelihoods | Piece | Finished
"""What an answer consists of, in the order in which it comes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A whole answer; the first of several has the `others`, in order.

    `text` is what was said; what was thought, and which tools were called, are apart. `of_prompt` says how likely the
    prompt's tokens were, if that was asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finished: Finished
    others: tuple[Completion, ...] = ()
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    likelihoods: tuple[TokenLikelihood, ...] = ()
    of_prompt: tuple[PromptLikelihoods, ...] = ()

    @classmethod
    def joined(
        cls,
        pieces: Sequence[Piece],
        finished: Finished,
        *others: Finished,
        of_prompt: tuple[PromptLikelihoods, ...] = (),
    ) -> Completion:
        """The completion that the `pieces` of the answer `finished` make up, with those of the `others`."""
        own = [piece for piece in pieces if piece.index == finished.index]
        return cls(
            text="".join(piece.text for piece in own if piece.kind == "text"),
            token_ids=tuple(token for piece in own for token in piece.token_ids),
            finished=finished,
            others=tuple(cls.joined(pieces, other) for other in others),
            thinking="".join(piece.text for piece in own if piece.kind == "thinking"),
            tool_calls=joined_calls(own),
            likelihoods=tuple(likelihood for piece in own for likelihood in piece.likelihoods),
            of_prompt=of_prompt,
        )


def joined_calls(pieces: Sequence[Piece]) -> tuple[ToolCall, ...]:
    """The calls that pieces of one answer make up, in order."""
    calls: dict[int, ToolCall] = {}
    for part in (piece.tool_call for piece in pieces if piece.tool_call is not None):
        known = calls.setdefault(part.call, ToolCall(id=part.id, name=part.name, arguments=""))
        calls[part.call] = replace(known, arguments=known.arguments + part.arguments)
    return tuple(calls.values())
