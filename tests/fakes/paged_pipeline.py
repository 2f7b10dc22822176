"""A pipeline that really keeps its pages: every row must find the tokens before it where its span says.

It answers with tokens that depend on all tokens so far and on nothing else, as a model does; a page given out too
early, a chunk out of order or a lost row therefore shows as an AssertionError or as another answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Tokens

from coordinator.scheduling.step import Step
from layerline.frames import PageRun, SampledToken, Span, StepResult

VOCABULARY = 50


def next_token(tokens: Tokens[int]) -> int:
    """The token that this model draws after `tokens`; a function of all of them."""
    value = 7
    for token in tokens:
        value = (value * 31 + token + 1) % 10007
    return value % VOCABULARY


def answer(prompt: Tokens[int], tokens: int, stop_ids: frozenset[int] = frozenset()) -> list[int]:
    """The whole answer to `prompt`: at most `tokens`, up to and with the first of `stop_ids`."""
    log = list(prompt)
    while len(log) - len(prompt) < tokens:
        log.append(next_token(log))
        if log[-1] in stop_ids:
            break
    return log[len(prompt) :]


class PagedPipeline:
    """Steps in, results out, in order. Rows are computed as steps enter, as stage 0 does."""

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._slots: dict[int, tuple[int, int, int]] = {}  # slot -> sequence, position, token
        self._results: deque[StepResult] = deque()

    @property
    def in_flight(self) -> int:
        """Results not fetched."""
        return len(self._results)

    def send(self, step: Step) -> None:
        """Computes a step."""
        rows = list(step.token_ids)
        sampled = []
        for span in step.spans:
            log = self._write(span, [rows.pop(0) for _ in range(span.count)])
            if span.sampling is not None:
                sampled.append(SampledToken(sequence=span.sequence, token_id=next_token(log)))
        assert not rows
        self._results.append(StepResult(epoch=1, step=step.number, sampled=tuple(sampled)))

    def receive(self) -> StepResult:
        """The result of the oldest step."""
        return self._results.popleft()

    def lose(self) -> None:
        """All pages and results are gone."""
        self._slots.clear()
        self._results.clear()

    def _write(self, span: Span, tokens: list[int]) -> list[int]:
        slots = self._slots_of(span.pages)
        end = span.start + span.count
        assert len(slots) - self._page_tokens < end <= len(slots), "pages are not those up to the last row"
        for offset, token in enumerate(tokens):
            self._slots[slots[span.start + offset]] = (span.sequence, span.start + offset, token)
        stored = [self._slots[slots[position]] for position in range(end)]
        assert [(sequence, position) for sequence, position, _ in stored] == [
            (span.sequence, position) for position in range(end)
        ], "the rows before are not in these pages"
        return [token for _, _, token in stored]

    def _slots_of(self, pages: tuple[PageRun, ...]) -> list[int]:
        return [
            page * self._page_tokens + slot
            for run in pages
            for page in range(run.first, run.first + run.count)
            for slot in range(self._page_tokens)
        ]
