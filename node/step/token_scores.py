"""The log-probabilities of known tokens: what is left of each row's logits where a text is measured.

Owns the numbers, in numpy on the CPU. Knows nothing of models, batches or sequences.

Shapes: N rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def log_probabilities(logits_NV: NDArray[np.float32], ids_N: Sequence[int]) -> NDArray[np.float32]:
    """The logarithm of the probability [N] that each row gives to its id; NaN where a row's logits are not numbers.

    The largest logit is subtracted first, so that no exponential is over 1; their sum is taken in float64.
    """
    scores_N = [_log_probability(logits_V, id_) for logits_V, id_ in zip(logits_NV, ids_N, strict=True)]
    return np.array(scores_N, np.float32)


def _log_probability(logits_V: NDArray[np.float32], id_: int) -> float:
    """That of one row: of a whole block of them there is no copy."""
    most = logits_V.max()
    with np.errstate(invalid="ignore"):  # infinity less infinity
        total = np.exp(logits_V - most).sum(dtype=np.float64)
        return float(np.minimum(np.float64(logits_V[id_]) - most - np.log(total), 0.0))


def likelihoods(logits_V: NDArray[np.float32], id_: int, count: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The log-probabilities of a token and of the `count` likeliest in its place, and the ids of these.

    They are those of the model's own logits, before bias, penalties and temperature. Of equals the lowest id is first.
    """
    most = logits_V.max()
    with np.errstate(invalid="ignore"):  # infinity less infinity
        total = np.log(np.exp(logits_V - most).sum(dtype=np.float64))
    count = min(count, len(logits_V))
    ids: list[int] = []
    if count:
        threshold = np.partition(logits_V, -count)[-count]
        candidates = np.flatnonzero(logits_V >= threshold)
        ids = candidates[np.argsort(-logits_V[candidates], kind="stable")][:count].tolist()
    told = [min(0.0, float(np.float64(logits_V[each]) - most - total)) for each in (id_, *ids)]
    return tuple(told), tuple(ids)
