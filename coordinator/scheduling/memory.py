"""Who gets pages, and how many: the one place that knows the rule.

The rule. A sequence with a limit gets at once every page that it can come to need. It then never waits for
memory in mid-answer, and its pages are as few runs as there can be. To do the same for a sequence without a limit would
reserve the whole context for it, and two people who chat would wait for each other; so such a one starts
with pages for its log and `open_ended_tokens` more, which hold most answers whole, and grows by as much again when it
has used them. Growth can fail where the pool is empty; the scheduler then preempts the youngest sequence.

No sequence is accepted that could not have all its pages if it were alone. That, and never preempting the oldest, is
why every sequence ends.
"""

from __future__ import annotations

from coordinator.scheduling.pages import PagePool, count_pages
from coordinator.scheduling.sequence import Sequence, SequenceRequest
from layerline.errors import PromptTooLongError, RequestError


class Memory:
    """A page pool and the rule by which sequences get its pages."""

    def __init__(self, pool: PagePool, *, context_tokens: int, open_ended_tokens: int) -> None:
        self.pool = pool
        self._context_tokens = context_tokens
        self._open_ended_tokens = open_ended_tokens

    def most_tokens(self, request: SequenceRequest) -> int:
        """The most tokens that the answer may have, at least 1.

        PromptTooLongError if the context leaves no room for one; RequestError if the pool could never hold it.
        """
        prompt_tokens = len(request.token_ids)
        if prompt_tokens == 0:
            raise RequestError("The prompt is empty.", remedy="Give at least one token.")
        if prompt_tokens >= self._context_tokens:
            raise PromptTooLongError(
                f"The prompt has {prompt_tokens} tokens; the context holds {self._context_tokens}, prompt and answer.",
                remedy="Shorten the prompt, or make a plan with a longer context.",
            )
        most_tokens = min(request.max_tokens or self._context_tokens, self._context_tokens - prompt_tokens)
        fitting_tokens = self.pool.tokens - prompt_tokens + 1
        if fitting_tokens < (most_tokens if request.max_tokens else 1):
            raise self._never_fits(request, most_tokens if request.max_tokens else 1)
        return min(most_tokens, fitting_tokens)

    def admit(self, sequence: Sequence) -> bool:
        """Gives a waiting sequence the pages that it starts with; False if they are not free."""
        pages = self.pool.pages_for(self._first_positions(sequence))
        if pages > self.pool.free_pages:
            return False
        sequence.pages = self.pool.extend((), pages)
        return True

    def covers_next_row(self, sequence: Sequence) -> bool:
        """Whether the sequence has a page for the next row that it sends."""
        return count_pages(sequence.pages) * self.pool.page_tokens > sequence.issued

    def grow(self, sequence: Sequence) -> bool:
        """Gives a sequence further pages; False if none is free."""
        missing = self.pool.pages_for(sequence.positions) - count_pages(sequence.pages)
        pages = min(missing, self.pool.pages_for(self._open_ended_tokens), self.pool.free_pages)
        if pages == 0:
            return False
        sequence.pages = self.pool.extend(sequence.pages, pages)
        return True

    def release(self, sequence: Sequence) -> None:
        """Takes back all pages of a sequence that no step in flight touches."""
        assert sequence.steps_in_flight == 0
        self.pool.release(sequence.pages)
        sequence.pages = ()

    def _first_positions(self, sequence: Sequence) -> int:
        if sequence.request.max_tokens:
            return sequence.positions
        return min(sequence.positions, len(sequence.tokens) + self._open_ended_tokens)

    def _never_fits(self, request: SequenceRequest, most_tokens: int) -> RequestError:
        prompt_tokens = len(request.token_ids)
        return RequestError(
            f"The request needs memory for {prompt_tokens} tokens of prompt and {most_tokens} of answer; "
            f"the nodes have memory for {self.pool.tokens}.",
            remedy="Ask for fewer tokens, shorten the prompt, or give the nodes more memory.",
        )
