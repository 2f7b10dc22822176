"""How evenly the experts that rows choose fall on ranks: what is to be expected before anything is known."""

from __future__ import annotations

import math
from collections.abc import Sequence


def busiest_of_a_row(chosen: int, parts: Sequence[float]) -> float:
    """How many of the `chosen` experts of a row are on the rank that has the most of them, on average.

    Each choice falls on a rank with the probability that is its part. The mean of the largest of multinomial counts:
    the probability that none is above a bound is chosen! times a coefficient of a product of cut exponential series.
    """
    within = (_probability_within(chosen, parts, bound) for bound in range(chosen))
    return sum(1.0 - probability for probability in within)


def _probability_within(chosen: int, parts: Sequence[float], bound: int) -> float:
    product = [1.0] + [0.0] * chosen
    for part in parts:
        series = [part**count / math.factorial(count) for count in range(bound + 1)]
        product = [
            sum(series[count] * product[total - count] for count in range(min(bound, total) + 1))
            for total in range(chosen + 1)
        ]
    return product[chosen] * math.factorial(chosen)
