"""Which rows of a step known tokens are scored after, or are summed, and what is told of each span. Knows no logits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Span, TensorBytes
from layerline.step_result import RowSum, TokenScores
from node.step.token_scores import Likelihoods


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownToken:
    """A token that is scored where it stands, beside so many of the `likeliest` there."""

    id: int
    likeliest: int = 0


def scored_rows(spans: Sequence[Span]) -> list[tuple[int, KnownToken]]:
    """The rows after which a known token is to be scored, each with it."""
    ends = itertools.accumulate(span.count for span in spans)
    return [
        (end - len(span.next_ids) + index, KnownToken(id=id_, likeliest=span.likeliest))
        for end, span in zip(ends, spans, strict=True)
        for index, id_ in enumerate(span.next_ids)
    ]


def span_scores(spans: Sequence[Span], told: Sequence[Likelihoods]) -> tuple[tuple[TokenScores, ...], set[int]]:
    """What each span is scored, of those of all `scored_rows`; and the sequences of which one is not a number."""
    left = iter(told)
    scored = [(span, tuple(itertools.islice(left, len(span.next_ids)))) for span in spans if span.next_ids]
    failed = {span.sequence for span, own in scored if not all(math.isfinite(each[0][0]) for each in own)}
    scores = tuple(
        TokenScores(
            sequence=span.sequence,
            position=span.scored_positions.start,
            log_probabilities=tuple(probabilities[0] for probabilities, _ in own),
            likeliest_ids=tuple(id_ for _, ids in own for id_ in ids),
            likeliest_log_probabilities=tuple(each for probabilities, _ in own for each in probabilities[1:]),
        )
        for span, own in scored
        if span.sequence not in failed
    )
    return scores, failed


def summed_rows(spans: Sequence[Span]) -> list[range]:
    """The rows of each span that are told as their sum."""
    ends = itertools.accumulate(span.count for span in spans)
    return [range(end - span.summed, end) for end, span in zip(ends, spans, strict=True) if span.summed]


def span_sums(spans: Sequence[Span], sums: Sequence[NDArray[np.float32]]) -> tuple[RowSum, ...]:
    """What is told of each span with `summed_rows`, of which these are the sums."""
    summed = [span for span in spans if span.summed]
    return tuple(
        RowSum(
            sequence=span.sequence,
            end=span.end,
            rows=span.summed,
            total=TensorBytes(dtype="float32", shape=total.shape, data=total.tobytes()),
        )
        for span, total in zip(summed, sums, strict=True)
    )
