"""From the logits of a row to the token that is drawn after it. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from layerline.frames import Sampling, TensorBytes
from layerline.step_result import SampledToken
from node.step.sampler import draw
from node.step.token_scores import likelihoods


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedToken:
    """A token that is wanted: of which sequence, for which position, and how."""

    sequence: int
    position: int
    sampling: Sampling


def sampled_token(
    logits: NDArray[np.float32], wanted: WantedToken, ids: NDArray[np.int64] | None = None
) -> SampledToken | None:
    """The token that is drawn of these candidates, `ids` or else the vocabulary; None if the logits are not numbers."""
    place = draw(logits, wanted.sampling, wanted.position)
    if place is None:
        return None
    returned = None
    if wanted.sampling.return_logits:
        returned = TensorBytes(dtype="float32", shape=logits.shape, data=logits.tobytes())
    told: tuple[tuple[float, ...], tuple[int, ...]] = ((), ())
    if wanted.sampling.log_probabilities is not None:
        assert ids is None, "of the likeliest alone nothing can be told"
        told = likelihoods(logits, place, wanted.sampling.log_probabilities)
    return SampledToken(
        sequence=wanted.sequence,
        position=wanted.position,
        token_id=place if ids is None else int(ids[place]),
        logits=returned,
        log_probabilities=told[0],
        likeliest_ids=told[1],
    )
