"""The events of sequences, as the scheduler tells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layerline.errors import LayerlineError
from layerline.frames import TensorBytes

EndReason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """A sequence has a further token. `position` counts from the first token of its prompt.

    The first of an answer tells how many tokens of the prompt were found computed.
    """

    sequence: int
    token_id: int
    position: int
    first: bool  # of the answer
    cached_tokens: int = 0
    log_probabilities: tuple[float, ...] = ()  # of it, and then of the likeliest in its place, if asked for
    likeliest_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """Further tokens of a sequence are scored, from `position` on: the log-probability of each, given all before it.

    Of each of them as many of the likeliest in its place are told, in a row, if they were asked for.
    """

    sequence: int
    position: int
    log_probabilities: tuple[float, ...]
    likeliest_ids: tuple[int, ...] = ()
    likeliest_log_probabilities: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Summed:
    """Further rows of a sequence, so many, are summed: `total` [hidden], after the last norm."""

    sequence: int
    rows: int
    total: TensorBytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A sequence has ended; nothing more is told about it."""

    sequence: int
    reason: EndReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A sequence cannot go on; nothing more is told about it."""

    sequence: int
    error: LayerlineError


Event = Token | Scored | Summed | Ended | Failed
