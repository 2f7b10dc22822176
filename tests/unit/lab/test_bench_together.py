from __future__ import annotations

import pytest

from tests.bench.streams import Stream
from tests.bench.together import gaps_s, percentile, tokens_per_s_together
from tests.lab.commands import LabError


def stream(*times_s: float, asked_s: float = 0.0) -> Stream:
    return Stream(
        token_times_s=times_s,
        token_ids=tuple(range(len(times_s))),
        prompt_tokens=1,
        finish_reason="length",
        asked_s=asked_s,
    )


def test_only_tokens_while_all_answers_run_count() -> None:
    streams = [stream(1, 2, 3, 4, 5), stream(2, 3, 4), stream(1, 1.5, 2, 2.5, 3, 3.5, 4)]
    # From 2 to 4 seconds: two tokens, two tokens, four tokens.
    assert tokens_per_s_together(streams) == pytest.approx(8 / 2)


def test_times_count_from_when_the_first_answer_was_asked_for() -> None:
    later = stream(0, 1, 2, 3, 4, asked_s=1)
    assert list(later.times_s) == [1, 2, 3, 4, 5]
    assert tokens_per_s_together([stream(0, 1, 2, 3, 4), later]) == pytest.approx(6 / 3)


@pytest.mark.parametrize("early", [stream(0, 1), stream(0, 1, 2.2)])
def test_answers_that_hardly_run_together_are_no_measurement(early: Stream) -> None:
    with pytest.raises(LabError, match=r"2 answers ran together for only 0\.[02] s"):
        tokens_per_s_together([early, stream(2, 3, 4, 5, 6)])


def test_gaps_are_those_of_tokens_in_the_time_asked_for() -> None:
    streams = [stream(0, 1, 3, 7), stream(0, 4, asked_s=0.5)]
    assert gaps_s(streams, 1, 4.5) == [2, 4]
    assert gaps_s(streams, 4.5, 100) == [4]


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 2), (75, 3), (76, 4), (99, 4), (100, 4)])
def test_a_percentile_is_a_value_that_occurred(percent: float, value: float) -> None:
    assert percentile([4, 2, 1, 3], percent) == value
