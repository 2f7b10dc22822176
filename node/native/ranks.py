"""A rank among others of a stage that the kernels compute: its group takes tensors, which share its rows' memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from layerline.step_result import SampledToken
from node.model.token_sampling import TokenSampling
from node.ranks.group import RankGroup
from node.step.sampled_token import WantedToken
from node.step.span_scores import KnownToken
from node.step.token_scores import Likelihoods

Logits = NDArray[np.float32]


class GroupSums:
    """The `RankSums` of one rank of `group`."""

    def __init__(self, vocabulary: range, group: RankGroup) -> None:
        self.vocabulary = vocabulary
        self._group = group

    def add_up_(self, x_TC: NDArray[np.float32]) -> None:
        """Makes rows, in place, the sum of those of all ranks."""
        self._group.all_reduce_(torch.from_numpy(x_TC))


class GroupUse:
    """The `LogitsUse` of one rank of `group`, which has the logits of the tokens from `first_id` on."""

    def __init__(self, first_id: int, group: RankGroup) -> None:
        self._sampling = TokenSampling(first_id, group)

    def after(self, blocks: Iterable[tuple[Logits, Sequence[WantedToken]]]) -> list[SampledToken]:
        """The tokens that are drawn; only rank 0 gets any."""
        return self._sampling.after((torch.from_numpy(logits), wanted) for logits, wanted in blocks)

    def scores(self, blocks: Iterable[tuple[Logits, Sequence[KnownToken]]]) -> list[Likelihoods]:
        """How likely known tokens are; only rank 0 gets any."""
        return self._sampling.scores((torch.from_numpy(logits), tokens) for logits, tokens in blocks)
