"""One sequence: its log of tokens, how far they have been sent, its pages and its state.

States, and what is true in them (the package's docstring tells the whole life):

waiting     no pages, no step in flight; the log is complete, so prefilling it rebuilds everything.
prefilling  has pages for its log; not all of the log has been issued since it was admitted, or it is read.
decoding    all of the log has been issued, or all but what has just come back: a token, and what must follow it.
preempted   is to give up its pages; no new step, and waiting again when the last one in flight is back.
ended       the caller has been told; the pages are held until no step in flight touches them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from coordinator.scheduling.constraint import Constraint
from coordinator.scheduling.pages import count_pages, first_pages, pages_after, pages_between
from coordinator.scheduling.pool import runs_of
from layerline.checks import require
from layerline.errors import InternalError
from layerline.frames import PageRun, Sampling, Span, StateRun
from layerline.token_mask import TokenMask

SummedRows = Literal["", "all", "last"]
State = Literal["waiting", "prefilling", "decoding", "preempted", "ended"]

_NEXT_STATES: dict[State, tuple[State, ...]] = {
    "waiting": ("prefilling", "ended"),
    "prefilling": ("decoding", "preempted", "waiting", "ended"),
    "decoding": ("preempted", "waiting", "ended"),
    "preempted": ("waiting", "ended"),
    "ended": (),
}
_STORY_LENGTH = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceRequest:
    """A prompt to continue. `max_tokens` 0 is as many as fit; a token of `stop_ids` ends the sequence.

    None of those is drawn before there are `min_tokens`. The answer obeys the `constraint`, which is its own.

    Or a text that is read, and no token drawn: `next_ids` has the token after each of `token_ids`, which is scored
    beside the `likeliest` there; or the rows of all of them, or of the last one, are `summed`.
    """

    sequence: int
    token_ids: tuple[int, ...]
    max_tokens: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    next_ids: tuple[int, ...] = ()
    likeliest: int = 0
    summed: SummedRows = ""
    min_tokens: int = 0
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        require(self.sequence >= 0, "sequence must not be negative")
        require(self.max_tokens >= 0, "max_tokens must not be negative")
        require(len(self.next_ids) in (0, len(self.token_ids)), "a text is scored after each of its tokens")
        require(not (self.next_ids and self.summed), "a text is scored or summed")

    @classmethod
    def scoring(cls, sequence: int, token_ids: tuple[int, ...], likeliest: int = 0) -> SequenceRequest:
        """Scores all tokens but the first; the last one need not be computed."""
        return cls(
            sequence=sequence, token_ids=token_ids[:-1], next_ids=token_ids[1:], likeliest=likeliest, max_tokens=1
        )

    @classmethod
    def summing(cls, sequence: int, token_ids: tuple[int, ...], summed: SummedRows) -> SequenceRequest:
        """Sums the rows of all tokens, or gives that of the last."""
        return cls(sequence=sequence, token_ids=token_ids, summed=summed, max_tokens=1)

    @property
    def is_read(self) -> bool:
        """Whether something is told of its tokens, and none is drawn."""
        return bool(self.next_ids or self.summed)

    def fork(self, sequence: int, index: int) -> SequenceRequest:
        """Another answer to the same prompt, as sequence number `sequence`; answer `index` draws with seed + `index`.

        Forks need nothing more to be cheap: the second one waits for the pages of the first, and shares them.
        """
        sampling = replace(self.sampling, seed=(self.sampling.seed + index) % (1 << 64))
        constraint = self.constraint.fork() if self.constraint else None
        return replace(self, sequence=sequence, sampling=sampling, constraint=constraint)


class Sequence:
    """One token sequence being continued. `arrival` orders sequences by age; `max_tokens` is at least 1."""

    def __init__(self, request: SequenceRequest, *, arrival: int, max_tokens: int) -> None:
        self.request = request
        self.arrival = arrival
        self.max_tokens = max_tokens
        self.tokens = list(request.token_ids)
        self.issued = 0  # tokens of the log that have been sent since the sequence was admitted, or were cached then
        self.computed = 0  # of those, the ones whose keys and values are in their pages for certain
        self.cached = 0  # of those, the ones that need not be computed
        self.told = 0  # of the tokens of a text that is read, those of which all has been told
        self.steps_in_flight = 0
        self.failed = False  # what was computed of it is not numbers
        self.pages: tuple[PageRun, ...] = ()
        self.skipped_pages = 0  # that come before `pages` and that no further row reads
        self.state: State = "waiting"
        self._prompt_ids = tuple(dict.fromkeys(request.token_ids)) if request.sampling.repeats else ()
        self._answer_counts: dict[int, int] = {}  # of each token of the answer; only with a penalty
        self._story: deque[str] = deque(maxlen=_STORY_LENGTH)

    @property
    def id(self) -> int:
        """The number that the caller gave it."""
        return self.request.sequence

    @property
    def has_ended(self) -> bool:
        """Whether the caller has been told that it is over."""
        return self.state == "ended"

    @property
    def generated(self) -> int:
        """Tokens of the answer so far."""
        return len(self.tokens) - len(self.request.token_ids)

    @property
    def rows_to_issue(self) -> int:
        """Tokens of the log that have not been sent."""
        return len(self.tokens) - self.issued

    @property
    def rows_since_admission(self) -> int:
        """Tokens of the log that had, or have, to be computed since it was admitted."""
        return len(self.tokens) - self.cached

    @property
    def positions(self) -> int:
        """Positions that it may come to need pages for; the last token is never sent, so it needs none."""
        return len(self.request.token_ids) + self.max_tokens - 1

    @property
    def end_page(self) -> int:
        """The number of its pages, with those that it has given back."""
        return self.skipped_pages + count_pages(self.pages)

    def become(self, state: State, why: str) -> None:
        """Changes state; InternalError with the story so far if the state cannot follow."""
        self._story.append(f"{self.state} → {state} ({why}; {self.issued} of {len(self.tokens)} tokens issued)")
        if state not in _NEXT_STATES[self.state]:
            raise InternalError(f"Sequence {self.id} cannot become {state}. Its story: {'; '.join(self._story)}.")
        self.state = state

    def restart(self, why: str) -> None:
        """Waits again, with its log and without its pages."""
        self.become("waiting", why)
        self.issued = self.computed = self.cached = self.skipped_pages = 0
        self.pages = ()

    def begin(self, pages: tuple[PageRun, ...], *, cached: int, skipped_pages: int) -> None:
        """Takes its first pages, which come after `skipped_pages`; the first `cached` tokens need not be computed."""
        self.pages = pages
        self.skipped_pages = skipped_pages
        self.issued = self.computed = self.cached = cached

    def skip(self, pages: int) -> tuple[PageRun, ...]:
        """Gives its first `pages` pages back, which no further row reads."""
        skipped, self.pages = first_pages(self.pages, pages), pages_after(self.pages, pages)
        self.skipped_pages += pages
        return skipped

    def pages_between(self, first: int, end: int) -> list[int | None]:
        """Its pages at places `first` to `end` (exclusive), None for each that it has given back."""
        gone = max(0, min(end, self.skipped_pages) - first)
        return [None] * gone + pages_between(self.pages, first + gone - self.skipped_pages, end - self.skipped_pages)

    def exchange(self, pages: Mapping[int, int]) -> None:
        """Has instead of some of its pages others of the same content."""
        self.pages = runs_of(pages.get(page, page) for page in pages_between(self.pages, 0, self.end_page))

    def take_back(self, span: Span, *, failed: bool) -> None:
        """Takes in that a step with this span has come back; from one that `failed` on nothing counts as computed."""
        self.steps_in_flight -= 1
        self.failed = self.failed or failed
        if not self.failed:
            self.computed = span.start + span.count

    def issue(self, rows: int, page_tokens: int, states: tuple[StateRun, ...] = ()) -> tuple[Span, list[int]]:
        """Issues the next `rows` tokens of the log as a span; the span that ends the log asks for a token.

        `states` are the slots of its rows. Of a text that is read no span asks for a token, and each asks for what has
        not been told.
        """
        start, end = self.issued, self.issued + rows
        ends_log = end == len(self.tokens) and not self.request.is_read
        next_ids = self.request.next_ids[max(start, self.told) : end]
        pages = -(-end // page_tokens)
        assert 0 < rows <= self.rows_to_issue
        assert pages <= self.end_page, f"sequence {self.id} has no page for position {end - 1}"
        self.issued = end
        self.steps_in_flight += 1
        if ends_log and self.state == "prefilling":
            self.become("decoding", "all known tokens are issued")
        span = Span(
            sequence=self.id,
            start=start,
            count=rows,
            pages=first_pages(self.pages, pages - self.skipped_pages),
            skipped_pages=self.skipped_pages,
            draws=int(ends_log),
            sampling=self._sampling() if ends_log else None,
            next_ids=next_ids,
            likeliest=self.request.likeliest if next_ids else 0,
            summed=self._summed_rows(start, end),
            states=states,
        )
        return span, self.tokens[start:end]

    def _summed_rows(self, start: int, end: int) -> int:
        """How many of the last rows before `end` are told as a sum."""
        if self.request.summed == "all":
            return max(0, end - max(start, self.told))
        return int(self.request.summed == "last" and end == len(self.tokens))

    def append(self, token_id: int) -> None:
        """Writes a drawn token to the log."""
        self.tokens.append(token_id)
        if self.request.sampling.repeats or self.request.sampling.counts:
            self._answer_counts[token_id] = self._answer_counts.get(token_id, 0) + 1

    def _mask(self) -> TokenMask | None:
        """Which tokens may be drawn; None for any."""
        if self.request.constraint:
            return self.request.constraint.mask()
        if self.generated < self.request.min_tokens and self.request.stop_ids:
            return TokenMask.forbidding(self.request.stop_ids)
        return None

    def _sampling(self) -> Sampling:
        sampling, counts = self.request.sampling, self._answer_counts
        if mask := self._mask():
            sampling = replace(sampling, mask=mask)
        if not self._prompt_ids and not counts:
            return sampling
        answer_ids, answer_counts = tuple(counts), tuple(counts.values())
        return replace(sampling, prompt_ids=self._prompt_ids, answer_ids=answer_ids, answer_counts=answer_counts)
