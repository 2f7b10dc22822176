"""The fields by which all APIs say how an answer is drawn, and the options that they become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from coordinator.http.bodies import Body, refused_by_nouns
from coordinator.http.failures import HttpError
from layerline.requests import MAX_SEED, TokenBias
from layerline.sampling import SamplingOptions

MAX_DIGITS = 10  # of a token id
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How hard a model is to think, in the words of all APIs; which of them it knows is its template's matter."""


class DrawnBody(Body):
    """Null is as if the field were left out."""

    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None

    def drawn(self, stop: Sequence[str] = (), **others: Any) -> dict[str, Any]:
        """The options of a request that say how an answer is drawn and when it ends."""
        given = {
            "model": self.model,
            "sampling": self._sampling(),
            "seed": None if self.seed is None else _seed(self.seed),
            "stop": tuple(stop),
            "min_tokens": self.min_tokens,
            "ignore_eos": self.ignore_eos,
            "logit_bias": _biases(self.logit_bias),
            **others,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _sampling(self) -> SamplingOptions:
        """How tokens are drawn; without a temperature by the model's probabilities, as these APIs have it."""
        given = {
            "temperature": 1.0 if self.temperature is None else self.temperature,
            "top_p": self.top_p,
            "top_k": 0 if self.top_k == -1 else self.top_k,  # which other servers take for "off"
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
        }
        with refused_by_nouns():
            return SamplingOptions(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]


class StreamOptions(Body):
    """`include_usage` asks for a last chunk that tells the tokens."""

    include_usage: bool = False
    include_obfuscation: bool = False


class CompletionFields(DrawnBody):
    """What chats and completions have in common."""

    n: int | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    stream_options: StreamOptions | None = None

    def asked(self) -> dict[str, Any]:
        """The options of a request that these fields are."""
        if self.stream_options is not None and not self.stream:
            raise HttpError(400, "stream_options is for streams.", param="stream_options")
        return self.drawn([self.stop] if isinstance(self.stop, str) else self.stop or [], n=self.n)

    @property
    def tells_usage(self) -> bool:
        """Whether a stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


def _seed(seed: int) -> int:
    """A seed may be negative, as a signed number of 64 bits is."""
    if not -(1 << 63) <= seed <= MAX_SEED:
        raise HttpError(400, "seed must be a whole number of 64 bits.", param="seed")
    return seed % (MAX_SEED + 1)


def _biases(given: dict[str, float] | None) -> tuple[TokenBias, ...] | None:
    if given is None:
        return None
    for token in given:
        if not (token.isascii() and token.isdigit() and len(token) <= MAX_DIGITS and str(int(token)) == token):
            raise HttpError(400, f"logit_bias has {token[:40]!r}, which is not a token id.", param="logit_bias")
    with refused_by_nouns():
        return tuple(TokenBias(token_id=int(token), bias=bias) for token, bias in given.items())
