"""How well a model foretells a text: what a client asks, and the scores that it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from layerline.answer import StageSummary
from layerline.checks import require
from layerline.option import Listed, Text, WholeNumber, option, read_options
from layerline.plan import MAX_CONTEXT_TOKENS
from layerline.requests import MAX_TOKEN_ID
from layerline.units import format_bytes

MAX_TEXT_BYTES = 4 << 20  # three times the test part of WikiText-2; a message holds 8 MiB
WINDOW_TOKENS = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreRequest:
    """A text to be scored, by exactly one of `text` and `token_ids`, which is not an empty list.

    It is cut into windows of `window_tokens` tokens, one after the other, and each token is given those before it in
    its window. The first one of each has none, and is not scored. `model` is the one that must be loaded, empty for
    whichever is.
    """

    model: str = option("", Text(), "The model that must be loaded. [default: whichever is]", flag=None)
    text: str | None = None
    token_ids: tuple[int, ...] | None = option(
        None,
        Listed(WholeNumber(0, MAX_TOKEN_ID), "token ids", may_be_none=True),
        "Token ids to score, in place of text.",
        flag=None,
    )
    window_tokens: int = option(
        WINDOW_TOKENS,
        WholeNumber(2, MAX_CONTEXT_TOKENS),
        f"Cut the text into windows of N tokens. [default: {WINDOW_TOKENS}]",
        metavar="N",
        flag=None,
    )

    def __post_init__(self) -> None:
        read_options(self)
        require((self.text is None) != (self.token_ids is None), "give exactly one of text and token_ids")
        require(self.token_ids != (), "token_ids must not be empty")
        size_bytes = len(self.text.encode()) if self.text is not None else 0
        most = format_bytes(MAX_TEXT_BYTES)
        require(size_bytes <= MAX_TEXT_BYTES, f"the text has {format_bytes(size_bytes)}, and may have {most}")


class ScoreOptions(TypedDict, total=False):
    """Options of `score`: the model that must be loaded (default: whatever is), and the tokens of a window (512)."""

    model: str
    window_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowScores:
    """The scores of one window: of each of `token_ids` the natural logarithm of its probability.

    They are the tokens of the text, which has `text_tokens`, from place `start` on.
    """

    start: int
    token_ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    text_tokens: int

    def __post_init__(self) -> None:
        require(len(self.token_ids) == len(self.log_probabilities), "each token needs its log-probability")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringFinished:
    """All windows of a text are scored: how many tokens it has, what that took, and the pipeline that did it."""

    text_tokens: int
    took_s: float
    plan: tuple[StageSummary, ...]
