"""What the last stage returns to the coordinator for a step: what was drawn, scored and summed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from layerline.checks import require
from layerline.frames import MAX_ALTERNATIVES, MAX_POSITIONS, StageTiming, TensorBytes


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledToken:
    """A token drawn for a `position` of a sequence, after the row before it.

    `logits` [vocabulary] float32 only if asked for, as `log_probabilities`: of the token, and then of the likeliest in
    its place, of which `likeliest_ids` are the tokens.
    """

    sequence: int
    position: int
    token_id: int
    logits: TensorBytes | None = None
    log_probabilities: tuple[float, ...] = ()
    likeliest_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.log_probabilities)
        require(count == (len(self.likeliest_ids) + 1 if count else 0), "log-probabilities without their tokens")
        require(count <= MAX_ALTERNATIVES + 1, "too many log-probabilities")
        fair = all(-math.inf <= each <= 0.0 for each in self.log_probabilities)
        require(fair, "a log-probability is a number and at most 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenScores:
    """The log-probabilities of neighbouring tokens of a sequence, from `position` on, each given all before it.

    Of each of them as many `likeliest` ones are told, in a row, if they were asked for.
    """

    sequence: int
    position: int
    log_probabilities: tuple[float, ...]
    likeliest_ids: tuple[int, ...] = ()
    likeliest_log_probabilities: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        fair = all(-math.inf < score <= 0.0 for score in self.log_probabilities)
        fair = fair and all(-math.inf <= score <= 0.0 for score in self.likeliest_log_probabilities)
        require(fair, "a log-probability is a number and at most 0")
        require(len(self.likeliest_ids) == len(self.likeliest_log_probabilities), "likeliest tokens without their own")
        rest = len(self.likeliest_ids) % len(self.log_probabilities) if self.log_probabilities else 0
        require(rest == 0, "likeliest tokens of some places only")


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSum:
    """The sum [hidden] float32 of `rows` neighbouring rows of a sequence after the last norm; they end before `end`."""

    sequence: int
    end: int
    rows: int
    total: TensorBytes

    def __post_init__(self) -> None:
        require(0 < self.rows <= self.end <= MAX_POSITIONS, "summed rows out of range")
        require(self.total.dtype == "float32" and len(self.total.shape) == 1, "a sum that is not one float32 row")


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What the last stage returns for a step."""

    epoch: int
    step: int
    sampled: tuple[SampledToken, ...] = ()
    timings: tuple[StageTiming, ...] = ()
    failed: tuple[int, ...] = ()  # sequences of which a row is not numbers; nothing is drawn, scored or summed for them
    scores: tuple[TokenScores, ...] = ()
    sums: tuple[RowSum, ...] = ()
