"""Which of several errors to tell: when a pipeline breaks, many see it, and most of them see only a stream end."""

from __future__ import annotations

from collections.abc import Iterable

from layerline.errors import (
    DeadlineError,
    LayerlineError,
    NodeDrainingError,
    NodeLostError,
    StageFailedError,
)

TELLING_S = 0.3  # how long after the first word of a failure better ones are waited for
NAMING_S = 4.0  # the same while nobody has named a node: a frozen one is noticed by its neighbours up to a ping apart


def most_telling(errors: Iterable[LayerlineError]) -> LayerlineError:
    """What a worker or daemon says of itself, else what was seen of a node; of equals the first."""
    return max(errors, key=_telling)


def is_telling(error: LayerlineError) -> bool:
    """Whether it says more than that some stream has ended."""
    return _telling(error) > 0


def _telling(error: LayerlineError) -> int:
    if isinstance(error, (StageFailedError, NodeDrainingError)):
        return 3
    if isinstance(error, (NodeLostError, DeadlineError)):
        return 2 if error.node else 0
    return 1
