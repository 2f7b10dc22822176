"""What is said of which report."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.stats.diagnosis import MOST_SENTENCES, diagnose, diagnosed
from layerline.stats_report import LinkStats, PageStats, SequenceStats, SlotStats
from tests.fakes.stats_report import expert_stats, link_stats, period_stats, stage_stats, stats_report

SLOW = "The link attic → cellar takes 40% of a step, by estimate: a faster link helps more than a faster machine."
ALONE = "One step at a time is under way, so stages are idle 50% of it: send more requests at once."


def pages(used: int, cached: int, free: int) -> PageStats:
    return PageStats(used=used, cached=cached, free=free, lookup_tokens=0, hit_tokens=0, hit_share=0.0, preemptions=0)


def sequences(waiting: int) -> SequenceStats:
    return SequenceStats(waiting=waiting, prefilling=0, decoding=3, leaving=0)


def links(*shares: float) -> tuple[LinkStats, ...]:
    ends = (("coordinator", "attic"), ("attic", "cellar"), ("cellar", "coordinator"))
    return tuple(link_stats(*end, share) for end, share in zip(ends, shares, strict=True))


def one_stage(busy_share: float, **changes: Any) -> dict[str, Any]:
    ends = (link_stats("coordinator", "attic"), link_stats("attic", "coordinator"))
    return {"stages": (stage_stats(0, "attic", busy_share),), "links": ends, "steps_in_flight": 1.0, **changes}


@pytest.mark.parametrize(
    ("period", "changes", "sentences"),
    [
        pytest.param(
            {}, {}, ["Nothing stands out. The stages are busy: attic 50%, cellar 50% of the time."], id="at ease"
        ),
        pytest.param({"steps": 0}, {}, ["Nothing was computed in the last 60 s."], id="idle"),
        pytest.param(
            {"steps": 0},
            {"oldest_step_s": 40.0},
            ["A step has been under way for 40 s: look at the logs of the nodes attic, cellar."],
            id="stuck",
        ),
        pytest.param(
            {"stages": (stage_stats(0, "attic", 0.4), stage_stats(1, "cellar", 0.96))},
            {},
            ["Stage 1 (node cellar) is busy 96% of the time and the other waits for it: give it fewer layers."],
            id="uneven",
        ),
        pytest.param(
            {"stages": (stage_stats(0, "a", 0.9, layers=1), stage_stats(1, "b", 0.4), stage_stats(2, "c", 0.7))},
            {},
            ["Stage 0 (node a) is busy 90% of the time and the others wait for it: put a faster machine there."],
            id="one layer is too many",
        ),
        pytest.param({"links": links(0.1, 0.4, 0.1)}, {}, [SLOW], id="slow link"),
        pytest.param({"steps_in_flight": 1.0}, {}, [ALONE], id="one at a time"),
        pytest.param(
            {"steps_in_flight": 1.0, "links": links(0.1, 0.4, 0.1)}, {}, [SLOW, ALONE], id="one at a time, slow link"
        ),
        pytest.param(
            {"stages": (stage_stats(0, "attic", 0.8), stage_stats(1, "cellar", 0.9)), "links": links(0.4, 0.4, 0.4)},
            {},
            ["All stages are busy at least 80% of the time: faster machines, or more of them, help."],
            id="full, and links do not matter then",
        ),
        pytest.param(
            one_stage(0.9),
            {},
            ["Stage 0 (node attic) is busy 90% of the time: a faster machine, or one more, helps."],
            id="full machine",
        ),
        pytest.param(
            one_stage(0.9, rows_per_step=1.0),
            {},
            [
                "One row at a time is computed: requests sent at once share steps, which take hardly longer.",
                "Stage 0 (node attic) is busy 90% of the time: a faster machine, or one more, helps.",
            ],
            id="one machine, one request",
        ),
        pytest.param(
            {},
            {"sequences": sequences(3), "pages": pages(97, 1, 2)},
            [
                "3 requests wait for memory, as 97% of the pages are in use: --kv-dtype int8, more memory for the "
                "nodes, or smaller --max-tokens let more in at once."
            ],
            id="full memory",
        ),
        pytest.param(
            {},
            {"sequences": sequences(1), "slots": SlotStats(used=6, cached=0, free=0)},
            [
                "1 request waits for memory, as all 6 slots of recurrent state are in use: more memory for the nodes "
                "lets more in at once."
            ],
            id="no slot",
        ),
        pytest.param(
            {},
            {"sequences": sequences(1), "slots": SlotStats(used=5, cached=1, free=0)},
            ["Nothing stands out. The stages are busy: attic 50%, cellar 50% of the time."],
            id="cached slots can be had",
        ),
        pytest.param(
            {},
            {"sequences": sequences(3), "pages": pages(50, 48, 2)},
            ["Nothing stands out. The stages are busy: attic 50%, cellar 50% of the time."],
            id="cached pages can be had",
        ),
        pytest.param({"working_share": 0.125}, {}, ["There was work for only 12% of the last 60 s."], id="little work"),
    ],
)
def test_what_holds_the_work_up(period: dict[str, Any], changes: dict[str, Any], sentences: list[str]) -> None:
    assert list(diagnose(stats_report(period_stats(**period), **changes))) == sentences


def test_only_the_most_important_sentences_are_said() -> None:
    everything = period_stats(steps_in_flight=1.0, links=links(0.1, 0.4, 0.1), working_share=0.1)
    report = diagnosed(stats_report(everything, sequences=sequences(1), pages=pages(97, 1, 2)))
    assert len(report.diagnosis) == MOST_SENTENCES
    assert report.diagnosis[0].startswith("1 request waits for memory")
    assert report.diagnosis[1:] == (SLOW, ALONE)


def test_a_rank_with_too_many_rows_of_experts_is_named() -> None:
    busy = period_stats()
    assert not any("ranks" in sentence for sentence in diagnose(stats_report(busy, experts=(expert_stats(1.2),))))
    sentences = diagnose(stats_report(busy, experts=(expert_stats(), expert_stats(1.84, stage=0, node="attic"))))
    assert sentences[0] == (
        "Of the 2 ranks of stage 0 (node attic) the busiest computes 1.8 times the mean of its experts' rows, and the"
        " others wait: more memory for the node lets busy experts be there several times, and --experts split is even."
    )
