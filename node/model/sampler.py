"""Drawing a token from logits: the same logits, seed and position give the same token everywhere.

Owns the filters and the draw, in numpy on the CPU. Knows nothing of models, batches or sequences.

The filters are those of the `transformers` library, in its order: repetition penalty (Keskar et al., CTRL,
2019), temperature, top-k, top-p (Holtzman et al., 2020), min-p (Nguyen et al., 2024). After the first come the presence
and frequency penalties of the OpenAI API. The uniform number comes
from Philox (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011), a generator that is a function of a
key and a counter: here the seed and the position.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Sampling

Logits = NDArray[np.float32]
Probabilities = NDArray[np.float64]


def draw(logits: Logits, sampling: Sampling, position: int) -> int | None:
    """The token [vocabulary] logits give at `position`; at temperature 0 the likeliest, of equals the lowest id.

    None if the logits are not numbers.
    """
    if sampling.is_changed:
        logits = penalised(logits, sampling)
    likeliest = int(logits.argmax())
    if not np.isfinite(logits[likeliest]):  # argmax finds a NaN first
        return None
    if sampling.temperature == 0.0:
        return likeliest
    return _inverse(distribution(logits, sampling), uniform(sampling.seed, position))


def penalised(logits: Logits, sampling: Sampling) -> Logits:
    """A copy with the tokens so far made less likely, or more."""
    changed = logits.copy()
    if sampling.repeats:
        ids = np.array(sampling.prompt_ids + sampling.answer_ids, np.int64)
        penalty = np.float32(sampling.repetition_penalty)
        changed[ids] = np.where(logits[ids] < 0, logits[ids] * penalty, logits[ids] / penalty)
    if sampling.counts:
        ids, counts = np.array(sampling.answer_ids, np.int64), np.array(sampling.answer_counts, np.float32)
        changed[ids] -= np.float32(sampling.presence_penalty) + np.float32(sampling.frequency_penalty) * counts
    return changed


def distribution(logits: Logits, sampling: Sampling) -> Probabilities:
    """The probabilities [vocabulary] after the filters; they sum to about 1. Temperature is not 0."""
    scores = logits.astype(np.float64)
    scores -= scores.max()
    with np.errstate(over="ignore"):  # a temperature near 0 leaves minus infinity but for the likeliest
        scores /= sampling.temperature
    if 0 < sampling.top_k < len(scores):
        threshold = np.partition(scores, -sampling.top_k)[-sampling.top_k]
        scores[scores < threshold] = -np.inf
    probabilities = _normalised(np.exp(scores))
    if sampling.top_p < 1.0:
        probabilities = _normalised(_nucleus(probabilities, sampling.top_p))
    if sampling.min_p > 0.0:
        floor = sampling.min_p * probabilities.max()
        probabilities = _normalised(np.where(probabilities < floor, 0.0, probabilities))
    return probabilities


def uniform(seed: int, position: int) -> float:
    """A number from 0 to below 1 that depends on nothing else."""
    bits = int(np.random.Philox(key=seed, counter=position).random_raw())
    return (bits >> 11) * 2.0**-53


def _nucleus(probabilities: Probabilities, top_p: float) -> Probabilities:
    """Keeps each token unless those likelier (of equals, those with lower ids) already make up `top_p`.

    A token below (1 - top_p) / vocabulary is never kept: all such tokens together make up less than 1 - top_p.
    That leaves few to sort.
    """
    candidates = np.flatnonzero(probabilities >= (1.0 - top_p) / len(probabilities))
    order = candidates[np.argsort(-probabilities[candidates], kind="stable")]
    sorted_probabilities = probabilities[order]
    before = np.cumsum(sorted_probabilities) - sorted_probabilities
    kept = order[before < top_p]
    nucleus = np.zeros_like(probabilities)
    nucleus[kept] = probabilities[kept]
    return nucleus


def _normalised(weights: Probabilities) -> Probabilities:
    normalised: Probabilities = weights / weights.sum()
    return normalised


def _inverse(probabilities: Probabilities, uniform_number: float) -> int:
    """The token in whose share of the line from 0 to 1, laid out by id, the number falls."""
    kept = np.flatnonzero(probabilities)
    edges = probabilities[kept].cumsum()
    index = int(np.searchsorted(edges, uniform_number * edges[-1], side="right"))
    return int(kept[min(index, len(kept) - 1)])
