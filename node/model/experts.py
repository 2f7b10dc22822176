"""A feed-forward of experts, of which a router chooses some for each row.

What a row gets does not depend on who else chose its experts, but for the rounding of products: what its experts gave
is added in the order in which they were chosen.

Shapes: T rows, C hidden, N experts, K chosen by a row, P = TK pairs of a row and an expert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from layerline.frames import Span
from layerline.models.feed_forward_spec import ExpertsSpec
from node.model.feed_forward import FeedForward
from node.model.linear.forms import Linear
from node.model.norm import Norm
from node.slices.placed_experts import PlacedExperts


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


class HeldExperts:
    """The experts that are here, by their numbers, and which rows of theirs are computed here.

    `place_` says which; before that all are here, for all rows. Some of them may be `beside` the device: these take
    rows in float32 on the CPU. `rows_N` counts the rows that chose each expert.
    """

    def __init__(self, experts: Mapping[int, FeedForward], count: int, positions: RowPositions) -> None:
        self.experts = dict(experts)
        self.beside: dict[int, FeedForward] = {}
        self.rows_N = torch.zeros(count, dtype=torch.int64, device=positions.device)
        self._positions = positions
        self._placed: tuple[Tensor, Tensor] | None = None

    def place_(
        self, experts: Mapping[int, FeedForward], beside: Mapping[int, FeedForward], placed: PlacedExperts
    ) -> None:
        """From now on these experts are here, or beside the device, and compute the rows that `placed` says."""
        self.experts, self.beside = dict(experts), dict(beside)
        device = self._positions.device
        self._placed = torch.from_numpy(placed.copies_E).to(device), torch.from_numpy(placed.turns_E).to(device)

    def here(self, experts_TK: Tensor) -> Tensor | None:
        """Of each pair of a row and an expert [T, K] whether it is computed here; None: all are."""
        if self._placed is None:
            return None
        copies_E, turns_E = self._placed
        return self._positions.now_T[:, None] % copies_E[experts_TK] == turns_E[experts_TK]

    def here_shared(self) -> Tensor | None:
        """The rows for which a shared expert is computed here; None: all."""
        if self._placed is None or int(self._placed[0][-1]) == 1:
            return None
        copies, turn = (int(each[-1]) for each in self._placed)
        return (self._positions.now_T % copies == turn).nonzero()[:, 0]


class RowPositions:
    """The positions of the rows of the step that is being computed, on `device`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.now_T = torch.zeros(0, dtype=torch.int64, device=device)

    def take(self, spans: Sequence[Span]) -> None:
        """Those of a step of these spans."""
        positions = [position for span in spans for position in range(span.start, span.end)]
        self.now_T = torch.tensor(positions, dtype=torch.int64, device=self.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsFeedForward:
    """The experts that each row chose, weighed and added up, and the shared one beside them: what is here of them."""

    router: Router
    held: HeldExperts
    shared: FeedForward | None

    def __call__(self, x_TC: Tensor) -> Tensor:
        """What they add to the residual [T, C]."""
        return self.given(x_TC, self.router(x_TC))

    def given(self, x_TC: Tensor, choice: Choice) -> Tensor:
        """The sum [T, C] of what chosen experts make of the rows. Nothing is read of experts that no row chose."""
        weights_P1, weighs_input = choice.weights_TK.flatten()[:, None], self.router.spec.weighs_input
        made_PC = self._made(x_TC, choice.experts_TK, weights_P1 if weighs_input else None)
        weighed_PC = made_PC.float() if weighs_input else made_PC * weights_P1
        sum_TC = weighed_PC.view(len(x_TC), choice.experts_TK.shape[1], -1).sum(1)
        if self.shared is not None:
            self._add_shared_(sum_TC, x_TC, self.shared, choice.shared_T1)
        return sum_TC.to(x_TC.dtype)

    def _made(self, x_TC: Tensor, experts_TK: Tensor, weights_P1: Tensor | None) -> Tensor:
        """What its expert makes of the row of each pair, which is multiplied by its weight if there are weights.

        Zeros of pairs that are computed elsewhere.
        """
        count, chosen = self.router.spec.count, experts_TK.shape[1]
        of_pairs_P, here_TK = experts_TK.flatten(), self.held.here(experts_TK)
        self.held.rows_N.add_(torch.bincount(of_pairs_P, minlength=count))
        if here_TK is not None:
            of_pairs_P = of_pairs_P.where(here_TK.flatten(), count)  # sorted behind all experts
        pairs_P = of_pairs_P.sort(stable=True).indices  # expert by expert
        counts = torch.bincount(of_pairs_P, minlength=count + 1).tolist()
        new = torch.empty if here_TK is None else torch.zeros
        made_PC = new((len(of_pairs_P), x_TC.shape[1]), dtype=x_TC.dtype, device=x_TC.device)
        own_pairs = torch.split(pairs_P, counts)
        beside = [(make, own_pairs[expert]) for expert, make in self.held.beside.items() if counts[expert]]
        rows_beside = self._rows_beside(x_TC, [own for _, own in beside], chosen, weights_P1) if beside else []
        for expert, make in self.held.experts.items():  # a GPU is still computing these while the CPU does the others
            own = own_pairs[expert]
            if len(own):
                rows_PC = x_TC.index_select(0, own // chosen)
                made_PC[own] = make(rows_PC if weights_P1 is None else (rows_PC * weights_P1[own]).to(x_TC.dtype))
        if beside:
            made = [make(rows_PC) for (make, _), rows_PC in zip(beside, rows_beside, strict=True)]
            made_PC[torch.cat([own for _, own in beside])] = torch.cat(made).to(x_TC.device, x_TC.dtype)
        return made_PC

    @staticmethod
    def _rows_beside(x_TC: Tensor, pairs: Sequence[Tensor], chosen: int, weights_P1: Tensor | None) -> Sequence[Tensor]:
        """What experts beside the device get, in float32 on the CPU, brought there at once."""
        all_P = torch.cat(tuple(pairs))
        rows_PC = x_TC.index_select(0, all_P // chosen)
        if weights_P1 is not None:
            rows_PC = (rows_PC * weights_P1[all_P]).to(x_TC.dtype)
        return torch.split(rows_PC.to("cpu", torch.float32), [len(own) for own in pairs])

    def _add_shared_(self, sum_TC: Tensor, x_TC: Tensor, shared: FeedForward, weights_T1: Tensor | None) -> None:
        rows = self.held.here_shared()
        if rows is None:
            shared_TC = shared(x_TC)
            sum_TC += shared_TC if weights_T1 is None else shared_TC * weights_T1
        elif len(rows):
            made_RC = shared(x_TC[rows])
            sum_TC[rows] += made_RC if weights_T1 is None else made_RC * weights_T1[rows]
