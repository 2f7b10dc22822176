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

TELLING_S = 0.5  # how long after the first that names a node its own word is waited for
NAMING_S = 4.0  # the same while nobody has named a node: a frozen one is noticed by its neighbours up to a ping apart
_OWN_WORD = 3


def most_telling(errors: Iterable[LayerlineError]) -> LayerlineError:
    """What a worker or daemon says of itself, else what was seen of a node; of equals the first."""
    return max(errors, key=_telling)


def patience_s(error: LayerlineError) -> float:
    """How long after this word of a failure better ones are waited for: not at all after somebody's own."""
    if _telling(error) == _OWN_WORD:
        return 0.0
    return TELLING_S if _telling(error) > 0 else NAMING_S


def _telling(error: LayerlineError) -> int:
    if isinstance(error, (StageFailedError, NodeDrainingError)):
        return _OWN_WORD
    if isinstance(error, (NodeLostError, DeadlineError)):
        return 2 if error.node else 0
    return 1
