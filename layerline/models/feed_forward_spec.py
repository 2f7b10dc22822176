"""What a feed-forward is, as data: a dense one, or many experts of which a router chooses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from layerline.checks import require
from layerline.sharing import MOST_EXPERTS

MOST_SIDE = 1 << 24  # of anything in a model
MOST_EXPERTS_IN_ALL = 1 << 16  # of a model: three times what the largest have

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu"]
"""What a gate is passed through; "clamped_swiglu" is gpt-oss's: gate * sigmoid(alpha * gate) * (up + 1),
the gate at most the limit, up within it on either side."""
CLAMPED_SWIGLU_ALPHA, CLAMPED_SWIGLU_LIMIT = 1.702, 7.0
Scoring = Literal["softmax", "softmax_of_chosen", "sigmoid", "sigmoid_of_chosen"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsSpec:
    """How a row's experts are chosen: the router's logits become scores, of which the largest win.

    A tie is the expert's with the lower number. The weights of the chosen are their scores, made 1 in all if
    `normalised`, then multiplied by `scale`. Experts may be in groups, neighbours in a group: those that are chosen are
    then of the best groups, a group being as good as its best or its two best. A shared expert is beside them, for
    every row. What an expert gives is multiplied by its weight or, if `weighs_input`, what it gets; the weight of the
    shared one is always that of what it gives. If `apart`, the shared one and the others are branches, each with a norm
    of the residual before it and one of its sum, and the router reads the residual through a norm whose weight is
    divided by the root of the hidden size.

    Source: Fedus et al., Switch Transformers (2021); groups as in DeepSeek-V2 and V3, a bias of the choice as in the
    latter (2024); weighed inputs as in the Llama 4 model code (2025).
    """

    count: int
    chosen: int
    scoring: Scoring
    normalised: bool = False
    scale: float = 1.0
    weighs_input: bool = False
    router_bias: bool = False  # of the logits
    choice_bias: bool = False  # of scores, for the choice alone
    groups: int = 1
    chosen_groups: int = 1
    group_best: int = 2  # how many of its best make a group as good as it is
    shared_intermediate: int = 0  # the width of the shared expert; 0: there is none
    shared_gate: bool = False  # what the shared expert gives is multiplied by the sigmoid of a logit of its own
    apart: bool = False
    expert_scales: bool = False  # in the end each weight is multiplied by a number of its expert

    def __post_init__(self) -> None:
        require(0 < self.chosen <= self.count <= MOST_EXPERTS, "the number of experts is out of range")
        require(0 < self.chosen_groups <= self.groups, "the number of groups of experts is out of range")
        require(self.count % self.groups == 0, "groups of experts are not of one size")
        require(self.group_best in (1, 2), "a group of experts is as good as its best or its two best")
        own = self.count // self.groups
        require(self.groups == 1 or own > 1, "a group of experts has fewer than two")
        require(self.chosen <= own * self.chosen_groups, "groups have fewer experts than are chosen")
        require(0 <= self.shared_intermediate < MOST_SIDE, "shared_intermediate is out of range")
        require(self.shared_intermediate > 0 or not self.shared_gate, "a gate of no shared expert")
        require(self.shared_intermediate > 0 or not self.apart, "experts apart from no shared one")
        require(not (self.apart and self.shared_gate), "a gate of a shared expert that is apart")
        require(not (self.shared_gate and self.router_bias), "a bias of the router beside the gate of a shared expert")
        require(0 < self.scale < math.inf, "the scale of experts is out of range")
        require(self.scoring in get_args(Scoring), "a scoring of experts that is not known")


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedForwardSpec:
    """A gated feed-forward; with `experts` each of these is one, of that width."""

    intermediate: int
    activation: Activation = "silu"
    bias: bool = False
    experts: ExpertsSpec | None = None

    def __post_init__(self) -> None:
        require(0 < self.intermediate < MOST_SIDE, "intermediate is out of range")
        require(self.activation in get_args(Activation), "an activation that is not known")

    @property
    def expert_count(self) -> int:
        """How many experts there are beside a shared one; none of a dense one."""
        return 0 if self.experts is None else self.experts.count

    @property
    def experts_of_a_row(self) -> int:
        """How many experts a row has, the shared one included; none of a dense one."""
        experts = self.experts
        return 0 if experts is None else experts.chosen + (experts.shared_intermediate > 0)

    @property
    def widths(self) -> tuple[int, ...]:
        """How wide it is and, if it has a shared expert, that one."""
        shared = self.experts.shared_intermediate if self.experts else 0
        return (self.intermediate, shared) if shared else (self.intermediate,)

    @property
    def read_share(self) -> tuple[int, int]:
        """(the experts that a row chooses, how many there are); of a dense one (1, 1)."""
        return (1, 1) if self.experts is None else (self.experts.chosen, self.experts.count)
