"""The log-probabilities of tokens: what is left of a row's logits where a text is scored, or a drawn token told of.

Owns the numbers, in numpy on the CPU. Knows nothing of models, batches or sequences.

Shapes: V vocabulary.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Likelihoods = tuple[tuple[float, ...], tuple[int, ...]]
"""The log-probabilities of a token and of the likeliest in its place, and the ids of these."""


def likelihoods(logits_V: NDArray[np.float32], id_: int, count: int) -> Likelihoods:
    """Those of a token with the `count` likeliest; NaN where logits are not numbers.

    They are those of the model's own logits, before bias, penalties and temperature. Of equals the lowest id is first.
    The largest logit is subtracted first, so that no exponential is over 1; their sum is taken in float64.
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
    with np.errstate(invalid="ignore"):
        told = np.minimum(logits_V[[id_, *ids]].astype(np.float64) - most - total, 0.0)
    return tuple(told.tolist()), tuple(ids)
