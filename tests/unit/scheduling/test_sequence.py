from __future__ import annotations

import pytest

from coordinator.scheduling.sequence import Sequence, SequenceRequest
from layerline.errors import InternalError
from layerline.frames import PageRun, Sampling


def sequence(*token_ids: int, sampling: Sampling | None = None) -> Sequence:
    request = SequenceRequest(sequence=3, token_ids=token_ids, sampling=sampling or Sampling())
    admitted = Sequence(request, arrival=0, max_tokens=8)
    admitted.pages = (PageRun(first=0, count=2), PageRun(first=7, count=4))
    admitted.become("prefilling", "its pages were free")
    return admitted


def test_only_the_span_that_ends_the_log_asks_for_a_token() -> None:
    chunked = sequence(5, 6, 7, 8, 9)
    first, first_ids = chunked.issue(3, page_tokens=2)
    assert (first.start, first.count, first.sampling, first_ids) == (0, 3, None, [5, 6, 7])
    states: list[str] = [chunked.state]
    last, last_ids = chunked.issue(2, page_tokens=2)
    assert (last.start, last.count, last.sampling, last_ids) == (3, 2, Sampling(), [8, 9])
    assert [*states, chunked.state] == ["prefilling", "decoding"]


def test_a_span_has_every_page_up_to_its_last_row() -> None:
    chunked = sequence(5, 6, 7, 8, 9)
    span, _ = chunked.issue(3, page_tokens=2)
    assert span.pages == (PageRun(first=0, count=2),)
    span, _ = chunked.issue(2, page_tokens=2)
    assert span.pages == (PageRun(first=0, count=2), PageRun(first=7, count=1))


def test_with_a_penalty_the_distinct_tokens_go_along_those_of_the_answer_with_counts() -> None:
    repeating = sequence(5, 6, 5, sampling=Sampling(repetition_penalty=1.2))
    span, _ = repeating.issue(3, page_tokens=2)
    assert span.sampling == Sampling(repetition_penalty=1.2, prompt_ids=(5, 6))
    for token in (9, 5, 9):
        repeating.append(token)
    span, _ = repeating.issue(3, page_tokens=2)
    assert span.sampling == Sampling(repetition_penalty=1.2, prompt_ids=(5, 6), answer_ids=(9, 5), answer_counts=(2, 1))


def test_penalties_of_the_answer_alone_need_no_tokens_of_the_prompt() -> None:
    counting = sequence(5, 6, 5, sampling=Sampling(frequency_penalty=0.5))
    span, _ = counting.issue(3, page_tokens=2)
    assert span.sampling == Sampling(frequency_penalty=0.5)
    counting.append(9)
    span, _ = counting.issue(1, page_tokens=2)
    assert span.sampling == Sampling(frequency_penalty=0.5, answer_ids=(9,), answer_counts=(1,))


def test_without_a_penalty_nothing_is_listed() -> None:
    span, _ = sequence(5, 6, 5).issue(3, page_tokens=2)
    assert span.sampling == Sampling()


def test_an_impossible_change_of_state_tells_the_story() -> None:
    ended = sequence(5, 6)
    ended.issue(2, page_tokens=2)
    ended.become("ended", "cancelled")
    with pytest.raises(InternalError) as failure:
        ended.become("waiting", "the pipeline was lost")
    assert "Sequence 3 cannot become waiting" in str(failure.value)
    assert "decoding → ended (cancelled; 2 of 2 tokens issued)" in str(failure.value)


def test_pages_that_it_has_parted_with_are_left_out_of_its_spans() -> None:
    sliding = sequence(*range(9))
    sliding.issue(6, page_tokens=2)
    assert sliding.skip(3) == (PageRun(first=0, count=2), PageRun(first=7, count=1))
    assert (sliding.skipped_pages, sliding.end_page) == (3, 6)
    span, _ = sliding.issue(2, page_tokens=2)
    assert (span.start, span.skipped_pages, span.pages) == (6, 3, (PageRun(first=8, count=1),))
    assert sliding.pages_between(1, 5) == [None, None, 8, 9]
    assert [sliding.pages_between(*places) for places in ((0, 2), (4, 6), (3, 3))] == [[None, None], [9, 10], []]
    sliding.restart("the pipeline was lost")
    assert (sliding.skipped_pages, sliding.end_page) == (0, 0)


def test_rows_beyond_the_pages_are_our_bug() -> None:
    short = sequence(*range(20))
    with pytest.raises(AssertionError, match="no page for position 13"):
        short.issue(14, page_tokens=2)
