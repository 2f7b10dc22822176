"""Reports on work, as tests need them: two stages at ease, and whatever else is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from layerline.stats_report import (
    DurationStats,
    ExpertStats,
    LayerExpertStats,
    LinkStats,
    PageStats,
    PeriodStats,
    RequestCounts,
    RequestStats,
    SequenceStats,
    StageStats,
    StatsReport,
)


def durations(count: int, each_s: float) -> DurationStats:
    """So many durations that are all alike."""
    return DurationStats(count=count, total_s=count * each_s, mean_s=each_s, p50_s=each_s, p99_s=each_s)


def stage_stats(stage: int, node: str, busy_share: float, *, layers: int = 10) -> StageStats:
    """A stage that was busy for that part of ten seconds."""
    return StageStats(
        stage=stage,
        node=node,
        first_layer=layers * stage,
        last_layer=layers * stage + layers - 1,
        steps=100,
        busy_s=10 * busy_share,
        waiting_s=10 * (1 - busy_share),
        sending_s=0.25,
        busy_share=busy_share,
        waiting_share=1 - busy_share,
        sending_share=0.025,
        bubble_share=1 - busy_share,
        step_time=durations(100, busy_share / 10),
    )


def link_stats(sender: str, receiver: str, wire_share: float = 0.05) -> LinkStats:
    """A link that a frame spends that part of a step's 0.2 s on."""
    return LinkStats(
        sender=sender,
        receiver=receiver,
        frames=100,
        payload_bytes=3 << 20,
        sending_s=0.5,
        wire_s=0.2 * wire_share,
        wire_share=wire_share,
    )


def period_stats(**changes: Any) -> PeriodStats:
    """A minute in which 100 steps were in flight for ten seconds."""
    period = PeriodStats(
        period_s=60.0,
        working_s=10.0,
        working_share=0.75,
        steps=100,
        steps_in_flight=2.0,
        prompt_rows=300,
        decode_rows=100,
        rows_per_step=4.0,
        tokens=120,
        tokens_per_s=2.0,
        step_time=durations(100, 0.2),
        queue_time=durations(3, 0.01),
        first_token_time=durations(3, 0.5),
        gap_time=durations(117, 0.125),
        stages=(stage_stats(0, "attic", 0.5), stage_stats(1, "cellar", 0.5)),
        links=(link_stats("coordinator", "attic"), link_stats("attic", "cellar"), link_stats("cellar", "coordinator")),
    )
    return replace(period, **changes)


def stats_report(recent: PeriodStats | None = None, **changes: Any) -> StatsReport:
    """A report on a pipeline of two nodes, an hour old."""
    report = StatsReport(
        model="tiny",
        up_s=3600.0,
        steps_in_flight=2,
        oldest_step_s=0.1,
        sequences=SequenceStats(waiting=0, prefilling=1, decoding=4, leaving=0),
        pages=PageStats(used=50, cached=20, free=30, lookup_tokens=1000, hit_tokens=250, hit_share=0.25, preemptions=2),
        recent=recent or period_stats(),
        total=period_stats(period_s=3600.0, steps=9000, tokens=7200),
        counts=RequestCounts(stop=5, length=4, cancelled=3, failed=2, refused=1),
        requests=(request_stats(9, "decoding"), request_stats(8, "waiting"), request_stats(7, "ended")),
        diagnosis=("Stage 1 (node cellar) is busy 96% of the time and the other waits for it: give it fewer layers.",),
    )
    return replace(report, **changes)


def request_stats(number: int, state: str) -> RequestStats:
    """A request of 30 tokens in that state; the ended one had a stop."""
    answered = state in ("decoding", "ended")
    return RequestStats(
        number=number,
        state=state,
        age_s=4.5,
        queue_s=0.25,
        first_token_s=0.75 if answered else None,
        prompt_tokens=30,
        completion_tokens=12 if answered else 0,
        gap_mean_s=0.05 if answered else None,
        gap_p99_s=0.0875 if answered else None,
        finish_reason="stop" if state == "ended" else "",
    )


def expert_stats(busiest_over_mean: float = 1.07, **changes: Any) -> ExpertStats:
    """The spread experts of the second of these nodes, on two ranks."""
    stats = ExpertStats(
        stage=1,
        node="cellar",
        sharing="spread",
        ranks=2,
        moves=3,
        busiest_over_mean=busiest_over_mean,
        busiest_over_mean_ever=1.21,
        layers=(LayerExpertStats(layer=10, rows=(5, 7), busiest_over_mean=busiest_over_mean),),
    )
    return replace(stats, **changes)
