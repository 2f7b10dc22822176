"""Makes the metrics for Prometheus of the numbers of a report. Their names stay, as dashboards rely on them.

Counters count since the model was brought up, and begin again with the next one, as Prometheus expects. Ratios,
quantiles and estimates are of the last minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Literal, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from layerline.stats_report import (
    DurationStats,
    ExpertStats,
    LinkStats,
    PageStats,
    PeriodStats,
    SlotStats,
    StageStats,
    StatsReport,
)

Told = TypeVar("Told")
Labels = dict[str, str]


CONTENT_TYPE = CONTENT_TYPE_LATEST


class _Collected(Collector):
    """The metrics of one moment, as the library asks for them."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """They."""
        return self._metrics


def exposition(report: StatsReport | None) -> bytes:
    """The text for a report; without a report it says that no model is in service."""
    loaded = _gauge("model_loaded", "Whether a model is in service.", int(report is not None))
    return generate_latest(_Collected([loaded] if report is None else [loaded, *_metrics(report)]))


def _metrics(report: StatsReport) -> Iterator[Metric]:
    recent, total = report.recent, report.total
    yield _metric("model_info", "gauge", "The model in service.", [({"model": report.model}, 1)])
    yield _gauge("up_seconds", "Time since the model was brought up.", report.up_s)
    yield from _load_metrics(report)
    yield from _work_metrics(recent, total)
    yield from _latency_metrics(recent, total)
    yield from _stage_metrics(recent.stages, total.stages)
    yield from _link_metrics(recent.links, total.links)
    yield from _page_metrics(report.pages)
    if report.experts:
        yield from _expert_metrics(report.experts)
    if report.slots:
        yield _metric("slots", "gauge", "Slots of recurrent state, by use.", _uses(report.slots))


def _load_metrics(report: StatsReport) -> Iterator[Metric]:
    yield _gauge("steps_in_flight", "Steps that are sent and not back.", report.steps_in_flight)
    yield _gauge("oldest_step_seconds", "How long the oldest step in flight has been so.", report.oldest_step_s)
    states = [({"state": state}, count) for state, count in asdict(report.sequences).items()]
    yield _metric("sequences", "gauge", "Sequences by state.", states)
    reasons = [({"reason": reason}, count) for reason, count in asdict(report.counts).items()]
    yield _metric("requests_total", "counter", "Requests that have ended, by how.", reasons)


def _work_metrics(recent: PeriodStats, total: PeriodStats) -> Iterator[Metric]:
    yield _counter("working_seconds_total", "Time in which a step was in flight.", total.working_s)
    yield _gauge("working_ratio", "Part of the last minute in which a step was in flight.", recent.working_share)
    kinds = [({"kind": "prompt"}, total.prompt_rows), ({"kind": "decode"}, total.decode_rows)]
    yield _metric("rows_total", "counter", "Rows computed, by what they are of.", kinds)
    yield _counter("tokens_total", "Tokens drawn.", total.tokens)


def _latency_metrics(recent: PeriodStats, total: PeriodStats) -> Iterator[Metric]:
    def summary(name: str, text: str, of: Callable[[PeriodStats], DurationStats]) -> Metric:
        return _summary(name, text, [({}, of(recent), of(total))])

    yield summary("step_seconds", "From when a step was sent until its result was back.", lambda p: p.step_time)
    yield summary("request_queue_seconds", "From a request to its first row.", lambda p: p.queue_time)
    yield summary("request_first_token_seconds", "From a request to its first token.", lambda p: p.first_token_time)
    yield summary("token_gap_seconds", "From token to token of an answer.", lambda p: p.gap_time)


def _stage_metrics(recent: Iterable[StageStats], total: Iterable[StageStats]) -> Iterator[Metric]:
    latest = [({"stage": str(stage.stage), "node": stage.node}, stage) for stage in recent]
    ever = [({"stage": str(stage.stage), "node": stage.node}, stage) for stage in total]
    text = "Time that a stage waited for its next frame while there was work in flight."
    yield _each("stage_busy_seconds_total", "counter", "Time that a stage computed.", ever, lambda s: s.busy_s)
    yield _each("stage_waiting_seconds_total", "counter", text, ever, lambda s: s.waiting_s)
    text = "Time that a stage waited until its output was taken."
    yield _each("stage_sending_seconds_total", "counter", text, ever, lambda s: s.sending_s)
    text = "Part of the working time in which a stage did not compute."
    yield _each("stage_bubble_ratio", "gauge", text, latest, lambda s: s.bubble_share)
    steps = [(labels, stage.step_time, old.step_time) for (labels, stage), (_, old) in zip(latest, ever, strict=True)]
    yield _summary("stage_step_seconds", "Time that a stage computed on a step.", steps)


def _link_metrics(recent: Iterable[LinkStats], total: Iterable[LinkStats]) -> Iterator[Metric]:
    latest = [(_link_labels(index, link), link) for index, link in enumerate(recent)]
    ever = [(_link_labels(index, link), link) for index, link in enumerate(total)]
    text = "Bytes of tensors and tokens sent over a link."
    yield _each("link_frames_total", "counter", "Frames sent over a link.", ever, lambda link: link.frames)
    yield _each("link_payload_bytes_total", "counter", text, ever, lambda link: link.payload_bytes)
    text = "Time that the sender waited until the link had taken its frames."
    yield _each("link_sending_seconds_total", "counter", text, ever, lambda link: link.sending_s)
    text = "Time of a frame on its way, an estimate."
    yield _each("link_wire_seconds", "gauge", text, latest, lambda link: link.wire_s)


def _page_metrics(pages: PageStats) -> Iterator[Metric]:
    yield _metric("pages", "gauge", "Pages of keys and values, by use.", _uses(pages))
    yield _counter("prefix_lookup_tokens_total", "Tokens that were looked for in the cache.", pages.lookup_tokens)
    yield _counter("prefix_hit_tokens_total", "Tokens that were found in the cache.", pages.hit_tokens)
    yield _counter("preemptions_total", "Sequences put back for want of pages.", pages.preemptions)


def _expert_metrics(experts: Iterable[ExpertStats]) -> Iterator[Metric]:
    told = [({"stage": str(each.stage), "node": each.node}, each) for each in experts]
    text = "Rows of experts that the busiest rank computed over the mean of ranks, in the last minute."
    yield _each("expert_busiest_over_mean", "gauge", text, told, lambda e: e.busiest_over_mean)
    text = "How often the experts of a layer have moved between ranks."
    yield _each("expert_moves_total", "counter", text, told, lambda e: e.moves)
    text = "Pairs of a row and an expert that it chose."
    rows = [({**labels, "layer": str(layer.layer)}, sum(layer.rows)) for labels, e in told for layer in e.layers]
    yield _metric("expert_rows_total", "counter", text, rows)


def _uses(held: PageStats | SlotStats) -> list[tuple[Labels, float]]:
    return [({"use": "used"}, held.used), ({"use": "cached"}, held.cached), ({"use": "free"}, held.free)]


def _link_labels(index: int, link: LinkStats) -> Labels:
    return {"link": str(index), "sender": link.sender, "receiver": link.receiver}


def _gauge(name: str, text: str, value: float) -> Metric:
    return _metric(name, "gauge", text, [({}, value)])


def _counter(name: str, text: str, value: float) -> Metric:
    return _metric(name, "counter", text, [({}, value)])


def _each(
    name: str,
    kind: Literal["counter", "gauge"],
    text: str,
    told: Iterable[tuple[Labels, Told]],
    value: Callable[[Told], float],
) -> Metric:
    return _metric(name, kind, text, [(labels, value(one)) for labels, one in told])


def _metric(name: str, kind: Literal["counter", "gauge"], text: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    family = Metric(f"layerline_{name.removesuffix('_total')}", text, kind)
    for labels, value in values:
        family.add_sample(f"layerline_{name}", labels, value)
    return family


def _summary(name: str, text: str, told: Iterable[tuple[Labels, DurationStats, DurationStats]]) -> Metric:
    """A summary with the quantiles of the latest durations, and the sum and count of all."""
    full_name = f"layerline_{name}"
    family = Metric(full_name, text, "summary")
    for labels, latest, ever in told:
        for quantile, value in (("0.5", latest.p50_s), ("0.99", latest.p99_s)):
            known = value if latest.count else float("nan")
            family.add_sample(full_name, {**labels, "quantile": quantile}, known)
        family.add_sample(f"{full_name}_sum", labels, ever.total_s)
        family.add_sample(f"{full_name}_count", labels, ever.count)
    return family
