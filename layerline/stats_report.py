"""What a coordinator tells about how the work goes: nouns of the SDK, of `layerline stats` and of its metrics.

All times are in seconds. Shares are from 0 to 1 and, unless another whole is named, parts of the time in which a step
was in flight. What is true of a period is in `PeriodStats`, of which a report has two: the last minute, and all the
time since the model was brought up.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DurationStats:
    """Durations of one kind: how many, their sum and mean, and the percentiles, which are right to within 5 %."""

    count: int
    total_s: float
    mean_s: float
    p50_s: float
    p99_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class StageStats:
    """What a stage did in a period; layers are inclusive.

    It computed for `busy_s`, waited for its next frame, while there was work in flight, for `waiting_s`, and for the
    next stage to take its output for `sending_s`. `bubble_share` is the time in which it did not compute though
    there was work in flight. `step_time` is what it computed on a step.
    """

    stage: int
    node: str
    first_layer: int
    last_layer: int
    steps: int
    busy_s: float
    waiting_s: float
    sending_s: float
    busy_share: float
    waiting_share: float
    sending_share: float
    bubble_share: float
    step_time: DurationStats


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkStats:
    """What passed over a link in a period; `sender` and `receiver` are names of nodes, or "coordinator".

    `payload_bytes` are those of tensors and tokens. Senders waited for `sending_s` until the link had taken the
    frames. `wire_s` is the time that a frame is on its way, and `wire_share` its part of the time of a step: both
    are estimates, as no two clocks are compared. They come of the time of a step in which no stage computed it.
    """

    sender: str
    receiver: str
    frames: int
    payload_bytes: int
    sending_s: float
    wire_s: float
    wire_share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PeriodStats:
    """What the pipeline did in the last `period_s`.

    A step was in flight for `working_s` of it, which is `working_share` of the period, and then `steps_in_flight` at
    a time on average. `step_time` is from when a step was sent until its result was back. Rows of prompts include
    those that are computed again. `queue_time` is from a request to its first row, `first_token_time` from the
    request to its first token, `gap_time` from token to token.
    """

    period_s: float
    working_s: float
    working_share: float
    steps: int
    steps_in_flight: float
    prompt_rows: int
    decode_rows: int
    rows_per_step: float
    tokens: int
    tokens_per_s: float
    step_time: DurationStats
    queue_time: DurationStats
    first_token_time: DurationStats
    gap_time: DurationStats
    stages: tuple[StageStats, ...]
    links: tuple[LinkStats, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceStats:
    """Sequences now, by state; those that are leaving wait for the last of their steps to come back."""

    waiting: int
    prefilling: int
    decoding: int
    leaving: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PageStats:
    """Pages of keys and values now, and the prefixes found among them since the model was brought up.

    Of `lookup_tokens`, those of all requests as they began, `hit_tokens` were cached: `hit_share` of them.
    """

    used: int
    cached: int
    free: int
    lookup_tokens: int
    hit_tokens: int
    hit_share: float
    preemptions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotStats:
    """Slots of recurrent state now: those of sequences, those that hold the states of prefixes, and the others."""

    used: int
    cached: int
    free: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerExpertStats:
    """One layer with experts: how many `rows` chose each since the stage was loaded.

    `busiest_over_mean` is as in `ExpertStats`, of this layer.
    """

    layer: int
    rows: tuple[int, ...]
    busiest_over_mean: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertStats:
    """The experts of a stage.

    `sharing` is "split" or "spread", and empty where there is one rank. `busiest_over_mean` is how many times its due
    the busiest rank of each layer computed, of the rows that chose experts in the last minute, and
    `busiest_over_mean_ever` of all rows; 0 if there were none. `moves` is how often the experts of a layer have moved.
    """

    stage: int
    node: str
    sharing: str
    ranks: int
    moves: int
    busiest_over_mean: float
    busiest_over_mean_ever: float
    layers: tuple[LayerExpertStats, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestCounts:
    """Requests since the model was brought up, by how they ended; those refused were never taken."""

    stop: int
    length: int
    cancelled: int
    failed: int
    refused: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestStats:
    """One request. `state` is "waiting", "prefilling", "decoding" or "ended".

    `age_s` counts from when it was queued until its end, or until now. `first_token_s` is absent before the first
    token, the gaps are before the second one. `finish_reason` is empty before the end, then a field of RequestCounts.
    """

    number: int
    state: str
    age_s: float
    queue_s: float
    first_token_s: float | None
    prompt_tokens: int
    completion_tokens: int
    gap_mean_s: float | None
    gap_p99_s: float | None
    finish_reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StatsReport:
    """How the work goes. `requests` are all that are running and the latest that have ended, the newest first.

    `oldest_step_s` is how long the oldest step in flight has been so, 0 if there is none. `diagnosis` says in a few
    sentences what holds the work up. Only a model with recurrent layers has slots, and only stages with experts tell of
    them.
    """

    model: str
    up_s: float
    steps_in_flight: int
    oldest_step_s: float
    sequences: SequenceStats
    pages: PageStats
    recent: PeriodStats
    total: PeriodStats
    counts: RequestCounts
    requests: tuple[RequestStats, ...]
    diagnosis: tuple[str, ...]
    slots: SlotStats | None = None
    experts: tuple[ExpertStats, ...] = ()
