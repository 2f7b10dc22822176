"""A dense feed-forward beside experts, each a branch with norms of its own.

    after₁(dense(before₁(x))) + after₂(experts(before₂(x)))

Shapes: T rows, C hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from node.model.experts import ExpertsFeedForward
from node.model.feed_forward import FeedForward
from node.model.norm import Norm


def _whole_already(sum_TC: Tensor) -> None:
    """What `BranchedFeedForward.add_up_` does where there is one rank."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BranchedFeedForward:
    """Both branches and the router read the residual as it is; `add_up_` makes a rank's part of a sum the whole one."""

    dense: FeedForward
    dense_before: Norm
    dense_after: Norm
    experts: ExpertsFeedForward
    experts_before: Norm
    experts_after: Norm
    add_up_: Callable[[Tensor], None] = _whole_already

    def __call__(self, x_TC: Tensor) -> Tensor:
        """What both add to the residual [T, C], before a norm of their sum."""
        dense_TC = self.dense(self.dense_before(x_TC))
        self.add_up_(dense_TC)
        experts_TC = self.experts.given(self.experts_before(x_TC), self.experts.router(x_TC))
        self.add_up_(experts_TC)
        return self.dense_after(dense_TC).add_(self.experts_after(experts_TC))
