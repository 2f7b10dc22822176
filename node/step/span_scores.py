"""Which rows of a step known tokens are scored after, and what each span of it is scored. Knows no logits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from layerline.frames import Span, TokenScores


def scored_rows(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """The rows after which a known token is to be scored, each with its id."""
    ends = itertools.accumulate(span.count for span in spans)
    return [
        (end - len(span.next_ids) + index, id_)
        for end, span in zip(ends, spans, strict=True)
        for index, id_ in enumerate(span.next_ids)
    ]


def span_scores(spans: Sequence[Span], log_probabilities: Sequence[float]) -> tuple[tuple[TokenScores, ...], set[int]]:
    """What each span is scored, of those of all `scored_rows`; and the sequences of which one is not a number."""
    left = iter(log_probabilities)
    scored = [(span, tuple(itertools.islice(left, len(span.next_ids)))) for span in spans if span.next_ids]
    failed = {span.sequence for span, scores in scored if not all(map(math.isfinite, scores))}
    scores = tuple(
        TokenScores(sequence=span.sequence, position=span.scored_positions.start, log_probabilities=scores)
        for span, scores in scored
        if span.sequence not in failed
    )
    return scores, failed
