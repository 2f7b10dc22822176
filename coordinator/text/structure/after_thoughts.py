"""A constraint that begins where a model's thoughts end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from coordinator.scheduling.constraint import Constraint
from layerline.mask_forms import with_token
from layerline.token_mask import TokenMask

TAIL_BYTES = 512  # of what was thought, in which its end is looked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Thoughts:
    """How thoughts begin and end: the token that opens them, if there is one, and the text that closes them.

    `text_of` gives a token's bytes, those of markers too. `has_begun` says that the prompt has opened them. Until they
    are closed no token of `stop_ids` ends the answer, which has not come yet.
    """

    begin_id: int | None
    end: re.Pattern[bytes]
    stop_ids: tuple[int, ...]
    text_of: Callable[[int], bytes]
    has_begun: bool
    vocabulary: int


class AfterThoughts:
    """`inner` holds for what comes behind the thoughts; without thoughts, for all of the answer.

    What a token has behind the end of the thoughts is not looked at: it is white space where models write a line end.
    """

    def __init__(self, inner: Constraint, thoughts: Thoughts) -> None:
        self._inner = inner
        self._thoughts = thoughts
        self._thinks = thoughts.has_begun
        self._begins = not thoughts.has_begun and thoughts.begin_id is not None
        self._end = b""  # of what was thought

    @property
    def is_over(self) -> bool:
        """Whether the answer is whole."""
        return not self._thinks and self._inner.is_over

    @property
    def failure(self) -> str:
        """Why it cannot be followed any further."""
        return self._inner.failure

    def mask(self) -> TokenMask | None:
        """Which tokens may come next: any while the model thinks, and thoughts may begin the answer."""
        if self._thinks:
            return TokenMask.forbidding(self._thoughts.stop_ids) if self._thoughts.stop_ids else None
        mask = self._inner.mask()
        if not self._begins or mask is None:
            return mask
        assert self._thoughts.begin_id is not None
        return with_token(mask, self._thoughts.begin_id, self._thoughts.vocabulary)

    def take(self, token_id: int) -> tuple[int, ...]:
        """A token was drawn."""
        begins, self._begins = self._begins, False
        if begins and token_id == self._thoughts.begin_id:
            self._thinks = True
            return ()
        if not self._thinks:
            return self._inner.take(token_id)
        self._end = (self._end + self._thoughts.text_of(token_id))[-TAIL_BYTES:]
        self._thinks = self._thoughts.end.search(self._end) is None
        return ()

    def fork(self) -> AfterThoughts:
        """One for another answer; forks are made before anything is drawn."""
        return AfterThoughts(self._inner.fork(), replace(self._thoughts))
