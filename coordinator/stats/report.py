"""Makes the nouns that clients get of tallies and figures. Pure."""

from __future__ import annotations

from coordinator.scheduling.figures import SchedulerFigures
from coordinator.stats.route import Route
from coordinator.stats.tally import StageTally, Tally
from layerline.answer import StageSummary
from layerline.stats_report import LinkStats, PageStats, PeriodStats, SequenceStats, SlotStats, StageStats


def sequence_stats(figures: SchedulerFigures) -> SequenceStats:
    """Sequences by state."""
    return SequenceStats(
        waiting=figures.sequences_waiting,
        prefilling=figures.sequences_prefilling,
        decoding=figures.sequences_decoding,
        leaving=figures.sequences_leaving,
    )


def page_stats(figures: SchedulerFigures) -> PageStats:
    """Pages by use, and how often prefixes were found among them."""
    return PageStats(
        used=figures.pages_used,
        cached=figures.pages_cached,
        free=figures.pages_free,
        lookup_tokens=figures.lookup_tokens,
        hit_tokens=figures.hit_tokens,
        hit_share=_share(figures.hit_tokens, figures.lookup_tokens),
        preemptions=figures.preemptions,
    )


def slot_stats(figures: SchedulerFigures) -> SlotStats | None:
    """Slots of recurrent state by use; None if the model has none."""
    slots = figures.slots
    return SlotStats(used=slots.used, cached=slots.cached, free=slots.free) if slots else None


def period_stats(route: Route, tally: Tally, period_s: float) -> PeriodStats:
    """The work of the pipeline in a period."""
    steps, rows = tally.steps.count, tally.prompt_rows + tally.decode_rows
    return PeriodStats(
        period_s=period_s,
        working_s=tally.working_us / 1e6,
        working_share=_share(tally.working_us / 1e6, period_s),
        steps=steps,
        steps_in_flight=tally.steps.total_us / tally.working_us if tally.working_us else 0.0,
        prompt_rows=tally.prompt_rows,
        decode_rows=tally.decode_rows,
        rows_per_step=rows / steps if steps else 0.0,
        tokens=tally.tokens,
        tokens_per_s=tally.tokens / period_s if period_s > 0 else 0.0,
        step_time=tally.steps.stats(),
        queue_time=tally.queueing.stats(),
        first_token_time=tally.first_tokens.stats(),
        gap_time=tally.gaps.stats(),
        stages=tuple(
            _stage_stats(number, summary, stage, tally.working_us)
            for number, (summary, stage) in enumerate(zip(route.stages, tally.stages, strict=True))
        ),
        links=_link_stats(route, tally),
    )


def _stage_stats(number: int, summary: StageSummary, tally: StageTally, working_us: float) -> StageStats:
    busy_us = tally.computing.total_us
    busy_share = _share(busy_us, working_us)
    return StageStats(
        stage=number,
        node=summary.node,
        first_layer=summary.first_layer,
        last_layer=summary.last_layer,
        steps=tally.computing.count,
        busy_s=busy_us / 1e6,
        waiting_s=tally.waiting_us / 1e6,
        sending_s=tally.sending_us / 1e6,
        busy_share=busy_share,
        waiting_share=_share(tally.waiting_us, working_us),
        sending_share=_share(tally.sending_us, working_us),
        bubble_share=1.0 - busy_share if working_us else 0.0,
        step_time=tally.computing.stats(),
    )


def _link_stats(route: Route, tally: Tally) -> tuple[LinkStats, ...]:
    return tuple(
        LinkStats(
            sender=sender,
            receiver=receiver,
            frames=link.frames,
            payload_bytes=link.payload_bytes,
            sending_s=link.sending_us / 1e6,
            wire_s=wire_us / 1e6,
            wire_share=_share(wire_us, tally.steps.mean_us),
        )
        for (sender, receiver), link, wire_us in zip(route.ends, tally.links, tally.wire_us(), strict=True)
    )


def _share(part: float, whole: float) -> float:
    """`part` of `whole`, 0 if that is nothing; at most 1, although a step may have begun before the period."""
    return min(1.0, part / whole) if whole > 0 else 0.0
