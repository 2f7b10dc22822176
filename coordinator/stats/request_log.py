"""Logs when each request was queued, begun, answered and ended. Keeps those that run and the latest that ended."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.scheduling.events import Ended, Event, Failed, Token
from coordinator.stats.distribution import Distribution
from coordinator.stats.tally import Tally
from layerline.stats_report import RequestCounts, RequestStats

MAX_ENDED = 64


@dataclass(kw_only=True, slots=True)
class _Entry:
    number: int
    prompt_tokens: int
    queued_s: float
    started_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float = 0.0
    ended_s: float | None = None
    tokens: int = 0
    gaps: Distribution = field(default_factory=Distribution)
    reason: str = ""

    def stats(self, now_s: float) -> RequestStats:
        until_s = now_s if self.ended_s is None else self.ended_s
        gaps = self.gaps.stats() if self.gaps.count else None
        return RequestStats(
            number=self.number,
            state=self._state(),
            age_s=until_s - self.queued_s,
            queue_s=(until_s if self.started_s is None else self.started_s) - self.queued_s,
            first_token_s=None if self.first_token_s is None else self.first_token_s - self.queued_s,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.tokens,
            gap_mean_s=gaps.mean_s if gaps else None,
            gap_p99_s=gaps.p99_s if gaps else None,
            finish_reason=self.reason,
        )

    def _state(self) -> str:
        if self.ended_s is not None:
            return "ended"
        if self.first_token_s is not None:
            return "decoding"
        return "waiting" if self.started_s is None else "prefilling"


class RequestLog:
    """The requests for one model. Times that are measured on the way are added to the `tally` that is given."""

    def __init__(self) -> None:
        self._running: dict[int, _Entry] = {}
        self._waiting: set[int] = set()
        self._ended: deque[_Entry] = deque(maxlen=MAX_ENDED)
        self._reasons: Counter[str] = Counter()

    def queue(self, number: int, prompt_tokens: int, now_s: float) -> None:
        """A request was queued."""
        self._running[number] = _Entry(number=number, prompt_tokens=prompt_tokens, queued_s=now_s)
        self._waiting.add(number)

    def refuse(self) -> None:
        """A request was refused."""
        self._reasons["refused"] += 1

    def start(self, numbers: Iterable[int], tally: Tally, now_s: float) -> None:
        """Rows of these requests are sent; the first time is the one that counts."""
        if not self._waiting:
            return
        for number in self._waiting.intersection(numbers):
            self._waiting.remove(number)
            entry = self._running[number]
            entry.started_s = now_s
            tally.queueing.add(1e6 * (now_s - entry.queued_s))

    def tell(self, event: Event, tally: Tally, now_s: float) -> None:
        """A token came, or an answer ended."""
        if isinstance(event, Token):
            tally.tokens += 1
            self._add_token(event.sequence, tally, now_s)
        elif isinstance(event, Failed):
            self._end(event.sequence, "failed", now_s)
        elif isinstance(event, Ended):
            self._end(event.sequence, event.reason, now_s)

    def fail(self, now_s: float) -> None:
        """All requests that run have failed."""
        for number in tuple(self._running):
            self._end(number, "failed", now_s)

    def counts(self) -> RequestCounts:
        """The numbers of requests by how they ended."""
        return RequestCounts(
            stop=self._reasons["stop"],
            length=self._reasons["length"],
            cancelled=self._reasons["cancelled"],
            failed=self._reasons["failed"],
            refused=self._reasons["refused"],
        )

    def stats(self, now_s: float) -> tuple[RequestStats, ...]:
        """The requests that run and the latest that have ended, the newest first."""
        entries = sorted((*self._ended, *self._running.values()), key=lambda entry: -entry.number)
        return tuple(entry.stats(now_s) for entry in entries)

    def _add_token(self, number: int, tally: Tally, now_s: float) -> None:
        entry = self._running.get(number)
        if entry is None:  # its answer has failed; the token was under way
            return
        if entry.first_token_s is None:
            entry.first_token_s = now_s
            tally.first_tokens.add(1e6 * (now_s - entry.queued_s))
        else:
            gap_us = 1e6 * (now_s - entry.last_token_s)
            entry.gaps.add(gap_us)
            tally.gaps.add(gap_us)
        entry.last_token_s = now_s
        entry.tokens += 1

    def _end(self, number: int, reason: str, now_s: float) -> None:
        entry = self._running.pop(number, None)
        if entry is None:
            return
        self._waiting.discard(number)
        entry.reason, entry.ended_s = reason, now_s
        self._reasons[reason] += 1
        self._ended.append(entry)
