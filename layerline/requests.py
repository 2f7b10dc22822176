"""What a client asks and what it gets: the nouns of the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from layerline.chat import Message, Tool, ToolCall, ToolRules
from layerline.checks import require, require_one_of
from layerline.option import Flag, Listed, Text, Texts, WholeNumber, option, read_options
from layerline.sampling import SamplingKeywords, SamplingOptions

STRUCTURES = ("json_object", "json_schema", "regex", "grammar")
PIECE_KINDS = ("text", "thinking", "tool_call")
MAX_BIAS, MAX_BIASES = 100, 1024
MAX_ALTERNATIVES = 20  # tokens that are told beside the one that was drawn
MAX_STOP_STRINGS = 16
MAX_ANSWERS = 16
MAX_TOKENS = 1 << 24
MAX_TOKEN_ID = (1 << 32) - 1
MAX_SEED = (1 << 64) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenBias:
    """What is added to the score of a token before it is drawn, from -100 to 100; these forbid it, or all others."""

    token_id: int
    bias: float

    def __post_init__(self) -> None:
        require(0 <= self.token_id <= MAX_TOKEN_ID, "logit_bias has an id that no token has")
        require(-MAX_BIAS <= self.bias <= MAX_BIAS, f"logit_bias must be from -{MAX_BIAS} to {MAX_BIAS}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Structure:
    """What an answer's text must be: any JSON object, or what a schema, a regular expression or a grammar allows.

    `text` is the JSON schema, the expression (Rust's syntax) or the grammar (llguidance's Lark); empty for an object.
    """

    kind: str
    text: str = ""

    def __post_init__(self) -> None:
        require_one_of(self.kind, STRUCTURES, "kind")
        require(bool(self.text) == (self.kind != "json_object"), f"the structure {self.kind} and its text do not fit")


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """One request, by exactly one of `messages`, `prompt` and `token_ids`, which are not empty lists.

    `model` is the one that must be loaded, empty for whichever is; `max_tokens` 0 is as many as fit. `n` answers are
    given, each from its own draws: answer i draws as a request of its own with seed + i would. `tools` and
    `template_variables`, a JSON object as text, are for the template of a chat.
    """

    model: str = option("", Text(), "The model that must be loaded. [default: whichever is]", flag=None)
    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    token_ids: tuple[int, ...] | None = option(
        None,
        Listed(WholeNumber(0, MAX_TOKEN_ID), "token ids", may_be_none=True),
        "Token ids to continue, in place of text.",
        flag=None,
    )
    max_tokens: int = option(
        0,
        WholeNumber(0, MAX_TOKENS),
        "End the answer after N tokens. [default: 0, as many as the context holds]",
        metavar="N",
    )
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    seed: int | None = option(
        None,
        WholeNumber(0, MAX_SEED, may_be_none=True),
        "Draw the same tokens whenever the seed is the same. [default: a new one, which is told]",
        metavar="N",
    )
    stop: tuple[str, ...] = option(
        (), Texts(MAX_STOP_STRINGS), "End the answer before this text; may be repeated.", metavar="S"
    )
    n: int = option(1, WholeNumber(1, MAX_ANSWERS), "How many answers are wanted. [default: 1]", flag=None)

    min_tokens: int = option(
        0, WholeNumber(0, MAX_TOKENS), "Do not end the answer before N tokens. [default: 0]", metavar="N", flag=None
    )
    ignore_eos: bool = option(False, Flag(), "Go on after an end-of-sequence token.", flag=None)
    log_probabilities: int | None = option(
        None,
        WholeNumber(0, MAX_ALTERNATIVES, may_be_none=True),
        "Tell how likely each token was, and the N likeliest in its place. [default: do not]",
        flag=None,
    )
    prompt_log_probabilities: int | None = option(
        None, WholeNumber(0, MAX_ALTERNATIVES, may_be_none=True), "The same for the prompt's tokens.", flag=None
    )
    structure: Structure | None = None
    tools: ToolRules | None = None
    template_variables: str = ""
    logit_bias: tuple[TokenBias, ...] = ()

    def __post_init__(self) -> None:
        read_options(self)
        given = [part for part in (self.messages, self.prompt, self.token_ids) if part is not None]
        require(len(given) == 1, "give exactly one of messages, prompt and token_ids")
        require(given[0] != (), "messages and token_ids must not be empty")
        require(len(self.logit_bias) <= MAX_BIASES, f"logit_bias must be of at most {MAX_BIASES} tokens")
        of_chat = self.messages is not None or not (self.tools or self.template_variables)
        require(of_chat, "tools and template_variables are for messages")


class GenerateOptions(SamplingKeywords, total=False):
    """Options of `chat` and `generate`; what is left out is off.

    `model` is the one that must be loaded (default: whatever is); `max_tokens` 0 means as many as fit; `seed` None lets
    the coordinator choose one, which the answer tells; `stop` is one string or several; `n` is how many answers are
    wanted (1 to 16), of which answer i draws with seed + i; the rest is as in `GenerateRequest`. The others are those
    of `SamplingOptions`.
    """

    model: str
    max_tokens: int
    seed: int | None
    stop: str | Sequence[str]
    n: int
    min_tokens: int
    ignore_eos: bool
    log_probabilities: int | None
    prompt_log_probabilities: int | None
    structure: Structure | None
    tools: ToolRules | Sequence[Tool | Mapping[str, Any]] | None
    template_variables: str
    logit_bias: Mapping[int, float] | Sequence[TokenBias]


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
