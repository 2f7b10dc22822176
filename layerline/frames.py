"""What travels on the ring from stage to stage; `layerline.step_result` is what the last stage returns.

A frame carries all that a stage needs to obey: the positions and pages of its rows and, for rows after which
a token is wanted, how to draw it. Stages therefore keep no state about sequences but the pages themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from layerline.checks import require, require_name, require_one_of
from layerline.option import options_of, read_options
from layerline.plan import DTYPE_BYTES, MAX_PAGES
from layerline.sampling import SamplingOptions
from layerline.token_mask import TokenMask

MAX_POSITIONS = 1 << 24
MAX_BIAS, MAX_BIASES = 100.0, 1024
MAX_ALTERNATIVES = 20  # tokens whose log-probabilities are told beside the one that was drawn
MAX_ROWS = 65536
MAX_SLOTS = 1 << 20
MAX_WAITED_US = 3_600_000_000
MAX_TENSOR_BYTES = 6 << 20  # below the message limit of layerline.rpc.channels
MAX_MASKS_BYTES = 1 << 20  # of all spans of a frame
PLAN_KEY_BYTES = 16
MAX_EPOCH = 1 << 53
MAX_EPOCH_JUMP = 1 << 20  # an epoch is one plan more, so nodes that have seen far more of them do not exist


@dataclass(frozen=True, kw_only=True, slots=True)
class PageRun:
    """`count` pages that lie next to each other in every layer's pool."""

    first: int
    count: int

    def __post_init__(self) -> None:
        require(
            self.first >= 0 and self.count > 0 and self.first + self.count <= MAX_PAGES,
            "page run out of range",
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StateRun:
    """So many neighbouring rows: the slot whose state they go on from, and the one that they leave theirs in.

    Both are numbers in the pool of every recurrent layer, and may be the same. The first rows of a sequence go on from
    none.
    """

    count: int
    source: int | None
    target: int

    def __post_init__(self) -> None:
        require(0 < self.count <= MAX_ROWS, "state run out of range")
        require(self.source is None or 0 <= self.source < MAX_SLOTS, "slot out of range")
        require(0 <= self.target < MAX_SLOTS, "slot out of range")


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling(SamplingOptions):
    """How a token is drawn: as the request asks for it, and what the coordinator adds.

    The draw depends on the logits, these fields and the position alone. The ids are there for the penalties only:
    those of the prompt, distinct, with a repetition penalty; those of the answer so far, distinct and each with how
    often it came, with any. To the logits of `bias_ids` the `biases` are added. `log_probabilities` says of how many of
    the likeliest they are told, beside that of the token; None for nothing.
    """

    seed: int = 0
    prompt_ids: tuple[int, ...] = ()
    answer_ids: tuple[int, ...] = ()
    answer_counts: tuple[int, ...] = ()
    return_logits: bool = False
    mask: TokenMask | None = None  # of the one token that is drawn
    bias_ids: tuple[int, ...] = ()
    biases: tuple[float, ...] = ()
    log_probabilities: int | None = None

    def __post_init__(self) -> None:
        read_options(self)
        require(0 <= self.seed < 1 << 64, "seed must be from 0 to 2**64 - 1")
        require(len(self.answer_ids) == len(self.answer_counts), "each token of the answer needs its count")
        require(len(self.bias_ids) == len(self.biases) <= MAX_BIASES, "each biased token needs its bias")
        require(all(abs(bias) <= MAX_BIAS for bias in self.biases), "a bias is out of range")
        require(0 <= (self.log_probabilities or 0) <= MAX_ALTERNATIVES, "too many log-probabilities are wanted")
        require(all(0 < count <= MAX_POSITIONS for count in self.answer_counts), "a token's count is out of range")

    @classmethod
    def of(cls, options: SamplingOptions, **others: Any) -> Sampling:
        """The sampling of a request's first token; the `others` are fields of its own."""
        return cls(**{name: getattr(options, name) for name in options_of(SamplingOptions)}, **others)

    @property
    def is_long(self) -> bool:
        """Whether it differs from token to token, or takes much room."""
        return bool(self.prompt_ids or self.answer_ids or self.mask or self.bias_ids)

    @property
    def repeats(self) -> bool:
        """Whether tokens of prompt and answer are to become less likely, or more."""
        return self.repetition_penalty != 1.0

    @property
    def counts(self) -> bool:
        """Whether tokens of the answer are, by how often they came."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def is_changed(self) -> bool:
        """Whether a bias or a penalty changes any score."""
        if self.bias_ids:
            return True
        return bool(self.answer_ids and (self.repeats or self.counts)) or bool(self.prompt_ids and self.repeats)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Neighbouring rows of one sequence, and the pages of that sequence up to the last of them, in order.

    Of a model whose every layer has a window the first pages are left out once no row reads them any more. Of a model
    with recurrent layers `states` says of all rows in turn which slots they use; each run goes on from where the one
    before has left its state.
    """

    sequence: int
    start: int  # position of the first row
    count: int
    pages: tuple[PageRun, ...]
    skipped_pages: int = 0  # how many of the sequence come before `pages`
    draws: int = 0  # after how many of the last rows a token is drawn, each by itself
    sampling: Sampling | None = None  # how; set if any is drawn
    next_ids: tuple[int, ...] = ()  # of known tokens, one after each of the last rows, that are to be scored
    likeliest: int = 0  # tokens that are told beside each of these
    summed: int = 0  # how many of the last rows are told as one sum
    states: tuple[StateRun, ...] = ()

    def __post_init__(self) -> None:
        require(self.start >= 0 and 0 < self.count <= MAX_ROWS, "span out of range")
        require(self.start + self.count <= MAX_POSITIONS, "span out of range")
        require(0 <= self.skipped_pages < MAX_POSITIONS, "skipped pages out of range")
        require(len(self.pages) > 0, "a span needs pages")
        require(0 <= self.draws <= self.count, "a span draws after none, some or all of its rows")
        require((self.draws > 0) == (self.sampling is not None), "a span that draws says how, and no other does")
        # What penalties count would differ from row to row.
        alike = self.sampling is None or not (self.sampling.repeats or self.sampling.counts)
        require(self.draws <= 1 or alike, "a span with a penalty draws once")
        require(self.draws <= 1 or self.sampling is None or self.sampling.mask is None, "a span with a mask draws once")
        require(len(self.next_ids) <= self.count, "a span is scored after none, some or all of its rows")
        require(0 <= self.summed <= self.count, "a span has none, some or all of its rows summed")
        wanted = (self.draws > 0) + bool(self.next_ids) + (self.summed > 0)
        require(wanted <= 1, "a span draws, is scored or is summed")
        require(0 <= self.likeliest <= (MAX_ALTERNATIVES if self.next_ids else 0), "likeliest tokens out of range")
        if self.states:
            self._check_states()

    def _check_states(self) -> None:
        require(sum(run.count for run in self.states) == self.count, "state runs that are not of all rows")
        require((self.states[0].source is None) == (self.start == 0), "only a sequence that begins has no state")
        goes_on = all(run.source == before.target for before, run in pairwise(self.states))
        require(goes_on, "a state run that does not go on from the one before")

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.start + self.count

    @property
    def mask_bytes(self) -> int:
        """The size of its mask, 0 if it has none."""
        return len(self.sampling.mask.data) if self.sampling and self.sampling.mask else 0

    @property
    def sampled_positions(self) -> range:
        """The positions of the tokens that are drawn."""
        return range(self.end - self.draws + 1, self.end + 1)

    @property
    def scored_positions(self) -> range:
        """The positions of the tokens that are scored."""
        return range(self.end - len(self.next_ids) + 1, self.end + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorBytes:
    """A row-major tensor as bytes, which dtype and shape must account for exactly."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        require_one_of(self.dtype, DTYPE_BYTES, "tensor dtype")
        require(0 < len(self.shape) <= 4 and min(self.shape) > 0, "tensor shape out of range")
        size = math.prod(self.shape) * DTYPE_BYTES[self.dtype]
        if size != len(self.data):
            raise ValueError(f"tensor has {len(self.data)} bytes, dtype and shape say {size}")
        require(size <= MAX_TENSOR_BYTES, "tensor too large for a frame")


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTiming:
    """What a stage spent on a step: computing it, and before that.

    `waited_us`, at most MAX_WAITED_US, is from when it was done with the step before until this one's frame was
    there, 0 for its first; `sending_us` is what it had taken to hand on the output of the step before.
    """

    stage_index: int
    compute_us: int
    waited_us: int = 0
    sending_us: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One step on its way: rows are those of the spans, one after the other.

    The tensor is int32 token ids [rows] into stage 0 and, between stages, activations: a row is the residual and what
    it carries beside that, as `layerline.models.row_layout` tells. `ids` are the token ids between stages of a model
    whose later layers need them.
    """

    epoch: int
    step: int
    spans: tuple[Span, ...]
    tensor: TensorBytes
    timings: tuple[StageTiming, ...] = ()
    ids: TensorBytes | None = None

    def __post_init__(self) -> None:
        require(len(self.spans) > 0, "a frame needs spans")
        require(sum([span.mask_bytes for span in self.spans]) <= MAX_MASKS_BYTES, "masks too large for a frame")
        if self.ids is not None:
            require(self.ids.dtype == "int32" and self.ids.shape == (self.rows,), "ids that are not one int32 a row")
        if self.tensor.shape[0] != self.rows:
            raise ValueError(f"{self.rows} rows, but the tensor has {self.tensor.shape[0]}")

    @property
    def rows(self) -> int:
        """Rows of all spans together."""
        return sum(span.count for span in self.spans)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hello:
    """The first message on a ring stream; a stage refuses one that does not match its place in the plan."""

    wire_version: int
    epoch: int
    plan_key: bytes
    model_digest: str
    stage_index: int  # of the stage that is greeted
    sender: str

    def __post_init__(self) -> None:
        require_name(self.sender, "sender")
