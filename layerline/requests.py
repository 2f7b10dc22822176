"""What a client asks and what it gets: the nouns of the SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerline.checks import require, require_one_of

ROLES = ("system", "user", "assistant", "tool")
MAX_STOP_STRINGS = 16
MAX_ANSWERS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str

    def __post_init__(self) -> None:
        require_one_of(self.role, ROLES, "role")


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """One request, by exactly one of `messages`, `prompt` and `token_ids`; `max_tokens` 0: as many as fit.

    `n` answers are given to it, each from its own draws: answer i draws as a request of its own with seed + i would.
    """

    model: str = ""
    messages: tuple[Message, ...] | None = None
    prompt: str | None = None
    token_ids: tuple[int, ...] | None = None
    max_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1

    def __post_init__(self) -> None:
        given = [part for part in (self.messages, self.prompt, self.token_ids) if part is not None]
        require(len(given) == 1, "give exactly one of messages, prompt and token_ids")
        require(self.max_tokens >= 0, "max_tokens must not be negative")
        require(len(self.stop) <= MAX_STOP_STRINGS, f"at most {MAX_STOP_STRINGS} stop strings")
        require(all(self.stop), "a stop string must not be empty")
        require(self.seed is None or 0 <= self.seed < 1 << 64, "seed must be from 0 to 2**64 - 1")
        require(1 <= self.n <= MAX_ANSWERS, f"n must be from 1 to {MAX_ANSWERS}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Text as it is made, and the ids that made it; `text` never ends in half a character.

    `index` says to which of the request's answers it belongs, from 0.
    """

    text: str
    token_ids: tuple[int, ...]
    index: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens of the prompt and of the answer (its end-of-sequence token counts).

    Of several answers to one prompt the first counts it and the others have 0 there, so that sums are right.
    """

    prompt_tokens: int
    completion_tokens: int


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
    """How an answer ended: "stop" (end of sequence or a stop string) or "length".

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A whole answer; the first of several has the `others`, in order."""

    text: str
    token_ids: tuple[int, ...]
    finished: Finished
    others: tuple[Completion, ...] = ()

    @classmethod
    def joined(cls, pieces: Sequence[Piece], finished: Finished, *others: Finished) -> Completion:
        """The completion that the `pieces` of the answer `finished` make up, with those of the `others`."""
        own = [piece for piece in pieces if piece.index == finished.index]
        return cls(
            text="".join(piece.text for piece in own),
            token_ids=tuple(token for piece in own for token in piece.token_ids),
            finished=finished,
            others=tuple(cls.joined(pieces, other) for other in others),
        )
