"""How a token is drawn, as a request asks for it: the options that travel on to the stage that draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from layerline.option import RealNumber, WholeNumber, option, read_options


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingOptions:
    """How a token is drawn; what is left out is off, and temperature 0 is greedy.

    The penalties come first, then temperature, top_k, top_p and min_p. `repetition_penalty` is of tokens of prompt and
    answer; `presence_penalty` and `frequency_penalty` are of tokens of the answer, for each once and for each time it
    came (the OpenAI API's meaning).
    """

    temperature: float = option(
        0.0,
        RealNumber(0, 100),
        "0 takes the likeliest token each time; 1 draws by the model's probabilities. [default: 0]",
        metavar="T",
    )
    top_p: float = option(
        1.0,
        RealNumber(0, 1, open=True),
        "Draw from the likeliest tokens that have probability P together. [default: 1]",
        metavar="P",
    )
    top_k: int = option(0, WholeNumber(0, 1 << 20), "Draw from the K likeliest tokens. [default: 0, off]", metavar="K")
    min_p: float = option(
        0.0,
        RealNumber(0, 1),
        "Drop tokens that have less than P times the likeliest's probability. [default: 0, off]",
        metavar="P",
    )
    repetition_penalty: float = option(
        1.0,
        RealNumber(0.01, 100),
        "Divide the scores of tokens that came before by R. [default: 1, off]",
        metavar="R",
    )
    presence_penalty: float = option(
        0.0,
        RealNumber(-2, 2),
        "Subtract S from the scores of tokens that the answer has. [default: 0, off]",
        metavar="S",
    )
    frequency_penalty: float = option(
        0.0,
        RealNumber(-2, 2),
        "Subtract S from a token's score for each time that the answer has it. [default: 0, off]",
        metavar="S",
    )

    def __post_init__(self) -> None:
        read_options(self)


class SamplingKeywords(TypedDict, total=False):
    """The same as keywords; a test holds that no option is missing."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
