"""Texts as vectors: what a client asks, and what it gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from layerline.answer import StageSummary
from layerline.checks import require
from layerline.option import Flag, OneOf, Text, WholeNumber, option, read_options

POOLINGS = ("mean", "last")
MAX_INPUTS = 2048
MAX_DIMENSIONS = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedInput:
    """One text, by exactly one of `text` and `token_ids`."""

    text: str | None = None
    token_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require((self.text is None) != (self.token_ids is None), "an input is a text or token ids")
        require(self.text != "" and self.token_ids != (), "an input is empty")


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbedRequest:
    """Texts of which vectors are wanted: the mean of the last hidden states of their tokens, or that of the last one.

    A hidden state is what the last layer gives, after the norm behind it. Of the vector the first `dimensions` numbers
    are kept, 0 for all, and these scaled to length 1 if `normalised`. `model` is the one that must be loaded, empty
    for whichever is.
    """

    model: str = option("", Text(), "The model that must be loaded. [default: whichever is]", flag=None)
    inputs: tuple[EmbedInput, ...]
    pooling: str = option("mean", OneOf(POOLINGS), "Of which tokens: mean of all, or last.", flag=None)
    normalised: bool = option(True, Flag(), "Scale vectors to length 1.", flag=None)
    dimensions: int = option(0, WholeNumber(0, MAX_DIMENSIONS), "Keep the first N numbers; 0 for all.", flag=None)

    def __post_init__(self) -> None:
        read_options(self)
        require(bool(self.pooling), "pooling must be mean or last")
        require(0 < len(self.inputs) <= MAX_INPUTS, f"inputs must be from 1 to {MAX_INPUTS} texts")


class EmbedOptions(TypedDict, total=False):
    """Options of `embed`, as `EmbedRequest` tells them: "mean" or "last", True, and 0 for all, unless given."""

    model: str
    pooling: str
    normalised: bool
    dimensions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedding:
    """The vector of input number `index`, from 0, which has so many tokens."""

    index: int
    numbers: tuple[float, ...]
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingFinished:
    """All vectors are there: how many tokens the inputs had, what that took, and the pipeline that did it."""

    tokens: int
    took_s: float
    plan: tuple[StageSummary, ...]
