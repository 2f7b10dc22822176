"""Drawing a token from logits: the same logits, seed and position give the same token everywhere.

Owns the filters and the draw, in numpy on the CPU. Knows nothing of models, batches or sequences.

The filters are those of the `transformers` library, in its order: bias of single tokens, repetition penalty (Keskar et
al., CTRL, 2019), temperature, top-k, top-p (Holtzman et al., 2020), min-p (Nguyen et al., 2024). After the first two
come the presence and frequency penalties of the OpenAI API, then the mask of tokens that may be drawn.

The draw is by Gumbel's maximum (Gumbel, 1954; Maddison et al., A* Sampling, 2014): each token that is left has noise
added to its score, and the highest sum wins, which is a draw by the tokens' probabilities. The noise of a token depends
on the seed, the position and its id alone. So a rounding error, as other kernels or another batch bring it, changes the
token only where the two best sums differ as little. A number from 0 to 1 that is looked up in the running sum of all
probabilities would be moved over an edge by the errors of all tokens before it.

The noise comes from Philox (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011), a generator that is a
function of a key and a counter: here the seed, and the position with the id.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Sampling
from layerline.mask_forms import allowed_tokens
from layerline.token_mask import TokenMask

Logits = NDArray[np.float32]
Numbers = NDArray[np.float64]
Ids = NDArray[np.int64]

BLOCK_WORDS = 4  # that Philox makes of one state of its counter
SKIPPED_WORDS = 256  # that are made in the time of a jump to one


def draw(logits: Logits, sampling: Sampling, position: int) -> int | None:
    """The token [vocabulary] logits give at `position`; at temperature 0 the likeliest, of equals the lowest id.

    None if the logits are not numbers, be it those that a mask forbids.
    """
    if sampling.is_changed:
        logits = penalised(logits, sampling)
    likeliest = _likeliest(logits)
    if likeliest is not None and sampling.mask:
        logits = masked(logits, sampling.mask)
        likeliest = _likeliest(logits)
    if likeliest is None:
        return None
    if sampling.temperature == 0.0:
        return likeliest
    scores = filtered(logits, sampling)
    kept = np.flatnonzero(np.isfinite(scores))
    return int(kept[(scores[kept] + noise(sampling.seed, position, kept)).argmax()])


def penalised(logits: Logits, sampling: Sampling) -> Logits:
    """A copy with what is asked for added to some tokens, and the tokens so far made less likely, or more."""
    changed = logits.copy()
    if sampling.bias_ids:
        changed[np.array(sampling.bias_ids, np.int64)] += np.array(sampling.biases, np.float32)
        logits = changed.copy()
    if sampling.repeats:
        ids = np.array(sampling.prompt_ids + sampling.answer_ids, np.int64)
        penalty = np.float32(sampling.repetition_penalty)
        changed[ids] = np.where(logits[ids] < 0, logits[ids] * penalty, logits[ids] / penalty)
    if sampling.counts:
        ids, counts = np.array(sampling.answer_ids, np.int64), np.array(sampling.answer_counts, np.float32)
        changed[ids] -= np.float32(sampling.presence_penalty) + np.float32(sampling.frequency_penalty) * counts
    return changed


def masked(logits: Logits, mask: TokenMask) -> Logits:
    """A copy with minus infinity for the tokens that may not be drawn."""
    return np.where(allowed_tokens(mask, len(logits)), logits, np.float32(-np.inf))


def _likeliest(logits: Logits) -> int | None:
    """The likeliest token; None if its logit is not a number."""
    likeliest = int(logits.argmax())
    return likeliest if math.isfinite(logits[likeliest]) else None  # argmax finds a NaN first


def filtered(logits: Logits, sampling: Sampling) -> Numbers:
    """The logarithms of the tokens' shares [vocabulary], the likeliest's 0; minus infinity for those that are left out.

    Temperature is not 0.
    """
    scores = logits.astype(np.float64)
    scores -= scores.max()
    with np.errstate(over="ignore"):  # a temperature near 0 leaves minus infinity but for the likeliest
        scores /= sampling.temperature
    if 0 < sampling.top_k < len(scores):
        threshold = np.partition(scores, -sampling.top_k)[-sampling.top_k]
        scores[scores < threshold] = -np.inf
    if sampling.top_p < 1.0:
        scores = _nucleus(scores, sampling.top_p)
    if sampling.min_p > 0.0:
        scores[np.exp(scores) < sampling.min_p] = -np.inf
    return scores


def noise(seed: int, position: int, ids: Ids) -> Numbers:
    """Gumbel noise for each of `ids`, which ascend; that of an id depends on nothing else."""
    return -np.log(-np.log(uniform(seed, position, ids)))


def uniform(seed: int, position: int, ids: Ids) -> Numbers:
    """A number over 0 and below 1 for each of `ids`, which ascend: of the 64 bits of an id the first 52, and a half."""
    return ((_words(seed, position, ids) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _words(seed: int, position: int, ids: Ids) -> NDArray[np.uint64]:
    """The words of the seed's and position's stream at the places `ids`, with a jump to each where they are few."""
    stream = np.random.Philox(key=seed, counter=position << 64)
    last = int(ids[-1])
    if len(ids) * SKIPPED_WORDS > last:
        return stream.random_raw(last + 1)[ids]
    words, block = np.empty(len(ids), np.uint64), 0
    for index, (wanted, place) in enumerate(divmod(int(id_), BLOCK_WORDS) for id_ in ids):
        stream.advance(wanted - block)
        words[index] = stream.random_raw(place + 1)[place]
        block = wanted + 1
    return words


def _nucleus(scores: Numbers, top_p: float) -> Numbers:
    """Keeps each token unless those likelier (of equals, those with lower ids) already make up `top_p`.

    A token below (1 - top_p) / vocabulary is never kept: all such tokens together make up less than 1 - top_p.
    That leaves few to sort.
    """
    weights = np.exp(scores)
    probabilities = weights / weights.sum()
    candidates = np.flatnonzero(probabilities >= (1.0 - top_p) / len(probabilities))
    order = candidates[np.argsort(-probabilities[candidates], kind="stable")]
    sorted_probabilities = probabilities[order]
    before = np.cumsum(sorted_probabilities) - sorted_probabilities
    kept = order[before < top_p]
    nucleus = np.full_like(scores, -np.inf)
    nucleus[kept] = scores[kept]
    return nucleus
