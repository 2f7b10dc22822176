"""Logits by chance, and their law: float32 ones are within 1e-4 of the plain model's, as a share of the largest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-4  # of the largest logit; float32 itself is no more exact where logits are large


def assert_close(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    """Compares logits of any shape, each row by its own largest."""
    found, expected = np.atleast_2d(found), np.atleast_2d(expected)
    assert found.shape == expected.shape
    largest = np.abs(expected).max(axis=-1, keepdims=True)
    bounds = np.broadcast_to(TOLERANCE * largest, expected.shape)  # the comparison takes equal shapes only
    np.testing.assert_array_less(np.abs(found - expected), bounds)


def random_logits(seed: int, vocabulary: int) -> NDArray[np.float32]:
    """Logits of one row, as spread as a model's."""
    return 3 * np.random.default_rng(seed).standard_normal(vocabulary, dtype=np.float32)
