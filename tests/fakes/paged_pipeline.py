"""A pipeline that really keeps its pages: every row must find the tokens before it where its span says.

What a slot holds depends on all tokens up to its own, as keys and values do, and so do the token that is drawn and the
score of a known one. So does a slot of recurrent state. A page or slot given out too early, a prefix shared wrongly, a
chunk out of order or a lost row therefore shows as an AssertionError or as another answer. With a window only the rows
that it reaches back to are looked at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Tokens
from itertools import pairwise

from coordinator.scheduling.step import Step
from layerline.frames import PageRun, Span, StageTiming
from layerline.step_result import SampledToken, StepResult, TokenScores

VOCABULARY = 50
EMPTY = 7  # the state before the first token


def next_token(tokens: Tokens[int]) -> int:
    """The token that this model draws after `tokens`; a function of all of them."""
    state = EMPTY
    for token in tokens:
        state = _after(state, token)
    return state % VOCABULARY


def scores(tokens: Tokens[int]) -> list[float]:
    """The scores of all tokens but the first."""
    state, told = EMPTY, []
    for token, following in pairwise(tokens):
        state = _after(state, token)
        told.append(_score(state, following))
    return told


def _score(state: int, token: int) -> float:
    return -((state + token) % 4096) / 64


def _after(state: int, token: int) -> int:
    return (state * 31 + token + 1) % 1_000_000_007


def answer(prompt: Tokens[int], tokens: int, stop_ids: frozenset[int] = frozenset()) -> list[int]:
    """The whole answer to `prompt`: at most `tokens`, up to and with the first of `stop_ids`."""
    log = list(prompt)
    while len(log) - len(prompt) < tokens:
        log.append(next_token(log))
        if log[-1] in stop_ids:
            break
    return log[len(prompt) :]


class PagedPipeline:
    """Steps in, results out, in order. Rows are computed as steps enter, as stage 0 does.

    What a row has read must still be there once all rows of its step are written, as a stage writes them all first.
    `reach_tokens` is the window of its layers, at least 2 as a row's state comes from the one before; 0 for none.
    """

    def __init__(self, page_tokens: int, reach_tokens: int = 0) -> None:
        assert reach_tokens != 1
        self._page_tokens = page_tokens
        self._reach_tokens = reach_tokens
        self._slots: dict[int, tuple[int, int, int]] = {}  # slot -> position, token, state after it
        self._recurrent: dict[int, tuple[int, int]] = {}  # slot of recurrent state -> tokens, state after them
        self._results: deque[StepResult] = deque()
        self._read_before: list[tuple[list[int], int, int]] = []  # by the rows of one step: slots, position, state

    @property
    def in_flight(self) -> int:
        """Results not fetched."""
        return len(self._results)

    def send(self, step: Step) -> None:
        """Computes a step."""
        rows = list(step.token_ids)
        sampled, scored = [], []
        self._read_before.clear()
        _check_apart(step)
        for span in step.spans:
            states = self._write(span, [rows.pop(0) for _ in range(span.count)])
            if span.sampling is not None:
                token_id = states[-1] % VOCABULARY
                sampled.append(SampledToken(sequence=span.sequence, position=span.end, token_id=token_id))
            if span.next_ids:
                scored.append(_scores_of(span, states))
        assert not rows
        for slots, first_position, state in self._read_before:
            assert self._read(slots, first_position) == state, "a row of this step is written to what another reads"
        timings = tuple(StageTiming(stage_index=stage, compute_us=100 + 10 * len(step.token_ids)) for stage in range(2))
        result = StepResult(epoch=1, step=step.number, sampled=tuple(sampled), timings=timings, scores=tuple(scored))
        self._results.append(result)

    def receive(self) -> StepResult:
        """The result of the oldest step."""
        return self._results.popleft()

    def lose(self) -> None:
        """All pages and results are gone."""
        self._slots.clear()
        self._recurrent.clear()
        self._results.clear()

    def _write(self, span: Span, tokens: list[int]) -> list[int]:
        """Computes the rows of a span; the state after each of them."""
        slots = self._slots_of(span.pages)
        skipped, end = span.skipped_pages * self._page_tokens, span.start + span.count
        first_read = max(0, span.start - self._reach_tokens + 1) if self._reach_tokens else 0
        assert skipped <= first_read < skipped + 2 * self._page_tokens, "pages are not those from the first row read"
        assert skipped + len(slots) - self._page_tokens < end <= skipped + len(slots), "nor those up to the last row"
        assert len(set(slots)) == len(slots), "a page is named twice for one sequence"
        read = slots[first_read - skipped : span.start - skipped]
        state = self._read(read, first_read)
        self._go_on(span, state, tokens)
        self._read_before.append((read, first_read, state))
        states = []
        for position, token in enumerate(tokens, span.start):
            state = _after(state, token)
            states.append(state)
            self._slots[slots[position - skipped]] = (position, token, state)
        return states

    def _go_on(self, span: Span, state: int, tokens: list[int]) -> None:
        """Has each run of rows go on from the state in its slot, which must be that after all tokens before."""
        rows = list(tokens)
        position = span.start
        for run in span.states:
            if run.source is not None:
                assert self._recurrent[run.source] == (position, state), "the slot has not the state of the rows before"
            for _ in range(run.count):
                state, position = _after(state, rows.pop(0)), position + 1
            self._recurrent[run.target] = position, state

    def _read(self, slots: list[int], first_position: int) -> int:
        """The state after what these slots hold, which must be one row of tokens from `first_position` on."""
        state = EMPTY
        for position, slot in enumerate(slots, first_position):
            stored_position, token, stored_state = self._slots[slot]
            state = _after(state, token) if position == 0 or position > first_position else stored_state
            assert (stored_position, stored_state) == (position, state), "the rows before are not in these pages"
        return state

    def _slots_of(self, pages: tuple[PageRun, ...]) -> list[int]:
        return [
            page * self._page_tokens + slot
            for run in pages
            for page in range(run.first, run.first + run.count)
            for slot in range(self._page_tokens)
        ]


def _check_apart(step: Step) -> None:
    """No slot that a span writes is named by another one."""
    for span in step.spans:
        written = {run.target for run in span.states}
        others = [run for other in step.spans if other is not span for run in other.states]
        assert not written.intersection(run.target for run in others), "two spans write a slot"
        assert not written.intersection(run.source for run in others), "a span writes what another goes on from"


def _scores_of(span: Span, states: list[int]) -> TokenScores:
    last = zip(states[-len(span.next_ids) :], span.next_ids, strict=True)
    return TokenScores(
        sequence=span.sequence,
        position=span.scored_positions.start,
        log_probabilities=tuple(_score(state, token) for state, token in last),
    )
