"""What `transformers` says of the tokens of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from tests.fakes.tiny_models import reference_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def reference_scores(reference: PreTrainedModel, token_ids: Sequence[int]) -> NDArray[np.float64]:
    """The log-probability of each token but the first, in one pass of the whole model."""
    logits = torch.from_numpy(reference_logits(reference, token_ids[:-1])).double()
    scores: NDArray[np.float64] = torch.log_softmax(logits, 1)[range(len(token_ids) - 1), list(token_ids[1:])].numpy()
    return scores


@torch.inference_mode()
def reference_perplexity(reference: PreTrainedModel, token_ids: Sequence[int], window_tokens: int) -> float:
    """As the documentation of `transformers` has it, with a stride as long as the window: by the loss of each window.

    The loss is the mean over all tokens of a window but its first.
    """
    total = tokens = 0.0
    for start in range(0, len(token_ids) - 1, window_tokens):
        ids = torch.tensor([list(token_ids[start : start + window_tokens])])
        total += float(reference(ids, labels=ids).loss) * (ids.shape[1] - 1)
        tokens += ids.shape[1] - 1
    return math.exp(total / tokens)
