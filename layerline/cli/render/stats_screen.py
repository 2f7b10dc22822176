"""How the work goes, as lines and tables for people. Pure: what is printed, and how wide, is the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from rich.table import Table

from layerline.cli.render.sentences import layers_text
from layerline.cli.render.tables import make_table
from layerline.stats_report import DurationStats, LinkStats, PeriodStats, RequestStats, StageStats, StatsReport
from layerline.units import format_bytes, format_seconds

MAX_REQUESTS = 12
STAGES_HEAD = ("STAGE", "NODE", "LAYERS", "BUSY", "WAITS", "SENDS", "BUBBLE", "STEPS", "A STEP", "P50", "P99")
LINKS_HEAD = ("LINK", "FRAMES", "PAYLOAD", "WAITED TO SEND", "ON THE WIRE (ESTIMATE)", "OF A STEP")
REQUESTS_HEAD = ("REQUEST", "STATE", "AGE", "QUEUE", "FIRST TOKEN", "PROMPT", "TOKENS", "GAP", "GAP P99")


def stats_screen(report: StatsReport, *, since_start: bool) -> Iterator[str | Table]:
    """The lines and tables, from top to bottom."""
    period = report.total if since_start else report.recent
    yield _head_line(report, period)
    yield from report.diagnosis
    yield ""
    yield make_table(STAGES_HEAD, map(_stage_row, period.stages))
    yield ""
    yield make_table(LINKS_HEAD, map(_link_row, period.links))
    yield ""
    yield from _period_lines(period)
    yield from _expert_lines(report, since_start=since_start)
    yield from _state_lines(report)
    if report.requests:
        yield ""
        yield make_table(REQUESTS_HEAD, map(_request_row, report.requests[:MAX_REQUESTS]))
    if len(report.requests) > MAX_REQUESTS:
        yield f"… and {len(report.requests) - MAX_REQUESTS} older requests, which --json has."


def _head_line(report: StatsReport, period: PeriodStats) -> str:
    nodes = "1 node" if len(period.stages) == 1 else f"{len(period.stages)} nodes"
    return (
        f"{report.model} on {nodes}, the last {_duration_text(period.period_s)} of {_duration_text(report.up_s)}:"
        f" at work {period.working_share:.0%} of it, {period.tokens} tokens ({period.tokens_per_s:.1f}/s)"
    )


def _period_lines(period: PeriodStats) -> Iterator[str]:
    yield (
        f"steps: {period.steps}, each {_spread_text(period.step_time)}, {period.steps_in_flight:.1f} in flight,"
        f" {period.rows_per_step:.1f} rows a step ({period.prompt_rows} of prompts, {period.decode_rows} of answers)"
    )
    yield f"in the queue: {_spread_text(period.queue_time)}"
    yield f"to the first token: {_spread_text(period.first_token_time)}"
    yield f"between tokens: {_spread_text(period.gap_time)}"


def _expert_lines(report: StatsReport, *, since_start: bool) -> Iterator[str]:
    """How evenly the ranks of each stage compute experts; none of a stage of one rank."""
    for stage in report.experts:
        if stage.ranks == 1:
            continue
        ratio = stage.busiest_over_mean_ever if since_start else stage.busiest_over_mean
        even = f"the busiest of {stage.ranks} ranks computes {ratio:.2f} times the mean" if ratio else "no rows"
        moves = "1 layer has moved its experts" if stage.moves == 1 else f"{stage.moves} moves of a layer's experts"
        moved = f"; {moves}" if stage.moves else ""
        yield f"experts of stage {stage.stage} ({stage.node}), {stage.sharing}: {even}{moved}"


def _state_lines(report: StatsReport) -> Iterator[str]:
    states = {"queued" if state == "waiting" else state: count for state, count in asdict(report.sequences).items()}
    sequences = ", ".join(f"{count} {state}" for state, count in states.items())
    ended = ", ".join(f"{count} {reason}" for reason, count in asdict(report.counts).items())
    pages = report.pages
    yield f"sequences now: {sequences}; {report.steps_in_flight} steps in flight"
    yield (
        f"pages now: {pages.used} used, {pages.cached} cached, {pages.free} free; since start {pages.hit_tokens}"
        f" of {pages.lookup_tokens} tokens were cached ({pages.hit_share:.0%}), {pages.preemptions} preemptions"
    )
    if report.slots:
        yield f"slots now: {report.slots.used} used, {report.slots.cached} cached, {report.slots.free} free"
    yield f"requests since start: {ended}"


def _stage_row(stage: StageStats) -> tuple[str, ...]:
    shares = (stage.busy_share, stage.waiting_share, stage.sending_share, stage.bubble_share)
    times = (stage.step_time.mean_s, stage.step_time.p50_s, stage.step_time.p99_s)
    layers = layers_text(stage.first_layer, stage.last_layer)
    head = (str(stage.stage), stage.node, layers, *(f"{share:.0%}" for share in shares))
    return (*head, str(stage.steps), *map(format_seconds, times))


def _link_row(link: LinkStats) -> tuple[str, ...]:
    ends = f"{link.sender} → {link.receiver}"
    sent = (str(link.frames), format_bytes(link.payload_bytes), format_seconds(link.sending_s))
    return (ends, *sent, format_seconds(link.wire_s), f"{link.wire_share:.0%}")


def _request_row(request: RequestStats) -> tuple[str, ...]:
    return (
        str(request.number),
        request.finish_reason or request.state,
        format_seconds(request.age_s),
        format_seconds(request.queue_s),
        _maybe_seconds(request.first_token_s),
        str(request.prompt_tokens),
        str(request.completion_tokens),
        _maybe_seconds(request.gap_mean_s),
        _maybe_seconds(request.gap_p99_s),
    )


def _spread_text(spread: DurationStats) -> str:
    if not spread.count:
        return "-"
    return f"{format_seconds(spread.mean_s)} (p50 {format_seconds(spread.p50_s)}, p99 {format_seconds(spread.p99_s)})"


def _maybe_seconds(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)


def _duration_text(seconds: float) -> str:
    """Whole seconds, minutes or hours, as in 42 s, 5 min or 3 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
