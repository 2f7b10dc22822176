"""Says what holds the work up, in a few sentences for people. Pure: a report in, sentences out.

The rules are in order, from a pipeline that stands still to one that is as busy as it should be; each gives one
sentence or none.
"""

from __future__ import annotations

from dataclasses import replace

from layerline.stats_report import LinkStats, StageStats, StatsReport

MOST_SENTENCES = 3
STUCK_S = 10.0
BUSY = 0.75  # a stage that computes for so much of the time is a limit
UNEVEN = 0.8  # a stage with less than this part of the work of the busiest one waits for it
WIDE_LINK = 0.25  # a link that takes so much of a step is named
FULL_PAGES = 0.9
ONE_STEP = 1.5  # fewer steps in flight than this count as one at a time
ONE_ROW = 1.5
LITTLE_WORK = 0.5
UNEVEN_EXPERTS = 1.3  # of the busiest rank over the mean, from which it is named


def diagnosed(report: StatsReport) -> StatsReport:
    """`report` with its diagnosis."""
    return replace(report, diagnosis=diagnose(report))


def diagnose(report: StatsReport) -> tuple[str, ...]:
    """The sentences on `report`, at least one, the most important first."""
    if sentence := _stuck(report) or _nothing_done(report):
        return (sentence,)
    rules = (_full_memory, _slow_link, _uneven, _uneven_experts, _one_at_a_time, _all_busy, _little_work)
    sentences = [sentence for rule in rules if (sentence := rule(report))]
    return tuple(sentences[:MOST_SENTENCES]) or (_nothing_stands_out(report),)


def _stuck(report: StatsReport) -> str:
    if report.oldest_step_s < STUCK_S:
        return ""
    nodes = ", ".join(stage.node for stage in report.recent.stages)
    return f"A step has been under way for {report.oldest_step_s:.0f} s: look at the logs of the nodes {nodes}."


def _nothing_done(report: StatsReport) -> str:
    return "" if report.recent.steps else f"Nothing was computed in the last {report.recent.period_s:.0f} s."


def _full_memory(report: StatsReport) -> str:
    pages, slots, waiting = report.pages, report.slots, report.sequences.waiting
    share = pages.used / max(1, pages.used + pages.cached + pages.free)
    who = "1 request waits" if waiting == 1 else f"{waiting} requests wait"
    if waiting and slots and slots.cached + slots.free == 0:
        states = f"as all {slots.used} slots of recurrent state are in use"
        return f"{who} for memory, {states}: more memory for the nodes lets more in at once."
    if not waiting or share < FULL_PAGES:
        return ""
    remedy = "--kv-dtype int8, more memory for the nodes, or smaller --max-tokens let more in at once"
    return f"{who} for memory, as {share:.0%} of the pages are in use: {remedy}."


def _slow_link(report: StatsReport) -> str:
    link = max(report.recent.links, key=lambda link: link.wire_share)
    if link.wire_share < WIDE_LINK or _busiest(report).busy_share >= BUSY:
        return ""
    return (
        f"The link {_link_name(link)} takes {link.wire_share:.0%} of a step, by estimate: "
        "a faster link helps more than a faster machine."
    )


def _uneven(report: StatsReport) -> str:
    busiest = _busiest(report)
    others = [stage for stage in report.recent.stages if stage is not busiest]
    if not others or busiest.busy_share < BUSY or not _all_below(others, UNEVEN * busiest.busy_share):
        return ""
    remedy = "give it fewer layers" if busiest.last_layer > busiest.first_layer else "put a faster machine there"
    them = "the other waits" if len(others) == 1 else "the others wait"
    return f"{_stage_name(busiest)} is busy {busiest.busy_share:.0%} of the time and {them} for it: {remedy}."


def _uneven_experts(report: StatsReport) -> str:
    stage = max(report.experts, key=lambda each: each.busiest_over_mean, default=None)
    if stage is None or stage.busiest_over_mean < UNEVEN_EXPERTS:
        return ""
    return (
        f"Of the {stage.ranks} ranks of stage {stage.stage} (node {stage.node}) the busiest computes"
        f" {stage.busiest_over_mean:.2g} times the mean of its experts' rows, and the others wait: more memory for the"
        " node lets busy experts be there several times, and --experts split is even."
    )


def _one_at_a_time(report: StatsReport) -> str:
    recent = report.recent
    if recent.steps_in_flight >= ONE_STEP or (len(recent.stages) == 1 and recent.rows_per_step >= ONE_ROW):
        return ""
    if len(recent.stages) == 1:
        return "One row at a time is computed: requests sent at once share steps, which take hardly longer."
    idle_share = sum(stage.bubble_share for stage in recent.stages) / len(recent.stages)
    return f"One step at a time is under way, so stages are idle {idle_share:.0%} of it: send more requests at once."


def _all_busy(report: StatsReport) -> str:
    stages = report.recent.stages
    least = min(stage.busy_share for stage in stages)
    if least < BUSY:
        return ""
    if len(stages) == 1:
        return f"{_stage_name(stages[0])} is busy {least:.0%} of the time: a faster machine, or one more, helps."
    return f"All stages are busy at least {least:.0%} of the time: faster machines, or more of them, help."


def _little_work(report: StatsReport) -> str:
    recent = report.recent
    if recent.working_share >= LITTLE_WORK:
        return ""
    return f"There was work for only {recent.working_share:.0%} of the last {recent.period_s:.0f} s."


def _nothing_stands_out(report: StatsReport) -> str:
    busy = ", ".join(f"{stage.node} {stage.busy_share:.0%}" for stage in report.recent.stages)
    return f"Nothing stands out. The stages are busy: {busy} of the time."


def _busiest(report: StatsReport) -> StageStats:
    return max(report.recent.stages, key=lambda stage: stage.busy_share)


def _all_below(stages: list[StageStats], busy_share: float) -> bool:
    return all(stage.busy_share < busy_share for stage in stages)


def _stage_name(stage: StageStats) -> str:
    return f"Stage {stage.stage} (node {stage.node})"


def _link_name(link: LinkStats) -> str:
    return f"{link.sender} → {link.receiver}"
