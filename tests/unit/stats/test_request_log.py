"""Every request's times, from the queue to its end, and no more requests than are to be kept."""

from __future__ import annotations

import pytest

from coordinator.scheduling.events import Ended, EndReason, Token
from coordinator.stats.request_log import MAX_ENDED, RequestLog
from coordinator.stats.tally import Tally
from layerline.stats_report import RequestStats


class Log:
    """A log and the tally of all the time."""

    def __init__(self) -> None:
        self.log = RequestLog()
        self.tally = Tally.of(1)

    def token(self, number: int, now_s: float) -> None:
        self.log.tell(Token(sequence=number, token_id=1, position=1, first=False), self.tally, now_s)

    def end(self, number: int, reason: EndReason, now_s: float) -> None:
        self.log.tell(Ended(sequence=number, reason=reason), self.tally, now_s)

    def start(self, number: int, now_s: float) -> None:
        self.log.start([number], self.tally, now_s)

    def only(self, now_s: float) -> RequestStats:
        (stats,) = self.log.stats(now_s)
        return stats


def test_the_life_of_a_request() -> None:
    log = Log()
    log.log.queue(7, 30, 10.0)
    waiting = log.only(10.5)
    assert (waiting.number, waiting.state, waiting.prompt_tokens) == (7, "waiting", 30)
    assert (waiting.age_s, waiting.queue_s, waiting.first_token_s) == (0.5, 0.5, None)

    log.start(7, 11.0)
    log.start(7, 12.0)  # a later chunk
    prefilling = log.only(13.0)
    assert (prefilling.state, prefilling.queue_s, prefilling.age_s) == ("prefilling", 1.0, 3.0)

    log.token(7, 14.0)
    first = log.only(14.0)
    assert (first.state, first.first_token_s, first.completion_tokens) == ("decoding", 4.0, 1)
    assert (first.gap_mean_s, first.gap_p99_s) == (None, None)

    for now_s in (14.25, 14.5, 16.0):
        log.token(7, now_s)
    log.end(7, "length", 16.5)
    ended = log.only(99.0)
    assert (ended.state, ended.finish_reason, ended.age_s, ended.completion_tokens) == ("ended", "length", 6.5, 4)
    assert ended.gap_mean_s == pytest.approx(2 / 3)
    assert ended.gap_p99_s == pytest.approx(1.5)


def test_times_go_to_the_tally_too() -> None:
    log = Log()
    for number in (1, 2):
        log.log.queue(number, 5, 10.0)
        log.start(number, 10.0 + number)
        log.token(number, 15.0)
        log.token(number, 15.0 + number)
    assert log.tally.queueing.total_us == pytest.approx(3e6)
    assert log.tally.first_tokens.total_us == pytest.approx(10e6)
    assert log.tally.gaps.count == 2
    assert log.tally.gaps.total_us == pytest.approx(3e6)
    assert log.tally.tokens == 4


def test_ends_are_counted_by_reason() -> None:
    log = Log()
    for number in range(6):
        log.log.queue(number, 5, 10.0)
    log.end(0, "stop", 11.0)
    log.end(1, "length", 11.0)
    log.end(2, "cancelled", 11.0)
    log.end(2, "cancelled", 12.0)
    log.log.refuse()
    log.log.fail(13.0)
    counts = log.log.counts()
    assert (counts.stop, counts.length, counts.cancelled, counts.failed, counts.refused) == (1, 1, 1, 3, 1)
    log.end(5, "cancelled", 14.0)  # who waited for a failed one leaves
    assert log.log.counts() == counts
    assert {stats.state for stats in log.log.stats(20.0)} == {"ended"}


def test_a_token_of_a_request_that_is_not_known_any_more_is_nobodys() -> None:
    log = Log()
    log.token(3, 10.0)
    assert log.log.stats(10.0) == ()
    assert log.tally.tokens == 1


def test_all_that_run_and_the_latest_that_ended_are_kept_newest_first() -> None:
    log = Log()
    for number in range(200):
        log.log.queue(number, 5, 10.0)
        if number % 2 == 0:
            log.end(number, "stop", 11.0)
    numbers = [stats.number for stats in log.log.stats(12.0)]
    assert numbers == sorted(numbers, reverse=True)
    assert set(numbers) == set(range(1, 200, 2)) | set(range(200 - 2 * MAX_ENDED, 200, 2))
