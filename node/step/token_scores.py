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
    most_N1 = logits_NV.max(axis=1, keepdims=True)
    of_ids_N = logits_NV[np.arange(len(logits_NV)), np.asarray(ids_N, np.int64)].astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        shares_NV = logits_NV - most_N1
        np.exp(shares_NV, out=shares_NV)
        scores_N = of_ids_N - most_N1[:, 0] - np.log(shares_NV.sum(axis=1, dtype=np.float64))
    bounded_N: NDArray[np.float32] = np.minimum(scores_N, 0.0).astype(np.float32)
    return bounded_N
