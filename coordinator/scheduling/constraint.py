"""What a sequence's answer must be, as the scheduler asks for it: pure, and always of the log as it stands."""

from __future__ import annotations

from typing import Protocol

from layerline.token_mask import TokenMask


class Constraint(Protocol):
    """Goes along with one sequence's log: its state is that of all tokens of the answer so far."""

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole and nothing can follow."""

    @property
    def failure(self) -> str:
        """Why it cannot be followed any further; empty while it can."""

    def mask(self) -> TokenMask | None:
        """Which tokens may come next; None for any."""

    def take(self, token_id: int) -> tuple[int, ...]:
        """A token was drawn. The tokens that can only come now, which are taken as well; often none."""

    def fork(self) -> Constraint:
        """One for another answer, from the same place."""
