"""The perplexity of a model on a text, out of the log-probabilities of its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable


class Perplexity:
    """The exponential of the mean of -log p over the tokens that were added.

    Its standard error is that of the mean times the perplexity (the delta method), as llama.cpp tells it.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._mean = 0.0  # of -log p
        self._squares = 0.0  # of the differences from the mean, summed as in Welford (1962)

    def add(self, log_probabilities: Iterable[float]) -> None:
        """Counts further tokens."""
        for log_probability in log_probabilities:
            self.tokens += 1
            difference = -log_probability - self._mean
            self._mean += difference / self.tokens
            self._squares += difference * (-log_probability - self._mean)

    @property
    def value(self) -> float:
        """The perplexity so far; infinite where it is too large for a number."""
        assert self.tokens > 0, "of no token"
        try:
            return math.exp(self._mean)
        except OverflowError:
            return math.inf

    @property
    def standard_error(self) -> float | None:
        """How far it may be from that of a longer text of the same kind; None of a single token."""
        if self.tokens < 2:
            return None
        return self.value * math.sqrt(self._squares / (self.tokens - 1) / self.tokens)
