"""A feed-forward of experts, of which a router chooses some for each row.

What a row gets does not depend on who else chose its experts, but for the rounding of products: what its experts gave
is added in the order in which they were chosen.

Shapes: T rows, C hidden, N experts, K chosen by a row, P = TK pairs of a row and an expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.models.feed_forward_spec import ExpertsSpec
from node.model.feed_forward import FeedForward
from node.model.linear.forms import Linear
from node.model.norm import Norm


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The experts of each row, the best first, and their weights; that of the shared expert too, if it has a gate."""

    experts_TK: Tensor
    weights_TK: Tensor
    shared_T1: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Router:
    """Chooses as `spec` says, in float32; `logits` has a last row for the gate of the shared expert, if it has one."""

    spec: ExpertsSpec
    logits: Linear
    choice_bias_N: Tensor | None
    scales_N: Tensor | None = None
    norm: Norm | None = None  # what it reads rows through

    def __call__(self, x_TC: Tensor) -> Choice:
        """The experts of each row."""
        spec, logits_TO = self.spec, self.logits(x_TC if self.norm is None else self.norm(x_TC)).float()
        logits_TN = logits_TO.narrow(1, 0, spec.count)
        scores_TN = _scores(spec, logits_TN)
        experts_TK = self._best(scores_TN)
        weights_TK = scores_TN.gather(1, experts_TK)
        if spec.scoring == "softmax_of_chosen":
            weights_TK = weights_TK.softmax(1)
        elif spec.scoring == "sigmoid_of_chosen":
            weights_TK = weights_TK.sigmoid()
        if spec.normalised:
            weights_TK = weights_TK / weights_TK.sum(1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
        weights_TK = weights_TK * (spec.scale if self.scales_N is None else spec.scale * self.scales_N[experts_TK])
        shared_T1 = logits_TO.narrow(1, spec.count, 1).sigmoid() if spec.shared_gate else None
        return Choice(experts_TK=experts_TK, weights_TK=weights_TK, shared_T1=shared_T1)

    def _best(self, scores_TN: Tensor) -> Tensor:
        spec = self.spec
        if self.choice_bias_N is not None:
            scores_TN = scores_TN + self.choice_bias_N
        if spec.chosen_groups < spec.groups:
            groups_TGN = scores_TN.view(len(scores_TN), spec.groups, -1)
            merits_TG = groups_TGN.topk(spec.group_best, dim=2).values.sum(2)
            groups_TG = torch.full_like(merits_TG, -torch.inf).scatter_(1, _largest(merits_TG, spec.chosen_groups), 0)
            scores_TN = (groups_TGN + groups_TG[:, :, None]).flatten(1)
        return _largest(scores_TN, spec.chosen)


def _scores(spec: ExpertsSpec, logits_TN: Tensor) -> Tensor:
    if spec.scoring == "softmax":
        return logits_TN.softmax(1)
    return logits_TN.sigmoid() if spec.scoring == "sigmoid" else logits_TN


def _largest(numbers_TN: Tensor, count: int) -> Tensor:
    """Where the largest of each row are, in order; of equals the first comes first, which `topk` does not promise."""
    return numbers_TN.sort(dim=1, descending=True, stable=True).indices.narrow(1, 0, count)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsFeedForward:
    """The experts that each row chose, weighed and added up, and the shared one beside them."""

    router: Router
    experts: Sequence[FeedForward]
    shared: FeedForward | None

    def __call__(self, x_TC: Tensor) -> Tensor:
        """What they add to the residual [T, C]."""
        return self.given(x_TC, self.router(x_TC))

    def given(self, x_TC: Tensor, choice: Choice) -> Tensor:
        """The sum [T, C] of what chosen experts make of the rows. Nothing is read of experts that no row chose."""
        chosen = choice.experts_TK.shape[1]
        of_pairs_P = choice.experts_TK.flatten()
        pairs_P = of_pairs_P.sort(stable=True).indices  # expert by expert
        counts = torch.bincount(of_pairs_P, minlength=len(self.experts)).tolist()
        weights_P1, weighs_input = choice.weights_TK.flatten()[:, None], self.router.spec.weighs_input
        made_PC = torch.empty((len(of_pairs_P), x_TC.shape[1]), dtype=x_TC.dtype, device=x_TC.device)
        for expert, own in zip(self.experts, torch.split(pairs_P, counts), strict=True):
            if len(own):
                rows_PC = x_TC.index_select(0, own // chosen)
                made_PC[own] = expert((rows_PC * weights_P1[own]).to(x_TC.dtype) if weighs_input else rows_PC)
        weighed_PC = made_PC.float() if weighs_input else made_PC * weights_P1
        sum_TC = weighed_PC.view(len(x_TC), chosen, -1).sum(1)
        if self.shared is not None:
            shared_TC = self.shared(x_TC)
            sum_TC += shared_TC if choice.shared_T1 is None else shared_TC * choice.shared_T1
        return sum_TC.to(x_TC.dtype)
