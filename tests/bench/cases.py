"""The cases by name: which there are, in which order, and with which models each is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.bench import (
    batch,
    decode,
    depth,
    experts,
    footprint,
    gaps,
    losses,
    masks,
    over_http,
    planned,
    prefill,
    prefix,
    ranks,
    simulated,
)
from tests.bench.effort import Effort
from tests.bench.figures import Figures
from tests.bench.layout import ONE_NODE, TWO_NODES, TWO_RANKS, TWO_THREADS
from tests.bench.models import MODELS
from tests.bench.pair import Layouts, Pair
from tests.bench.placement import Cut


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A case that is measured on clusters of both `layouts` with each of `models`, two nodes having such a `cut`."""

    name: str
    measure: Callable[[Pair, Effort], Figures]
    models: tuple[str, ...] = tuple(MODELS)
    layouts: Layouts = (ONE_NODE, TWO_NODES)
    cut: Cut = "usual"


CASES = (
    Case(name="footprint", measure=footprint.measure),
    Case(name="decode", measure=decode.measure),
    Case(name="prefill", measure=prefill.measure),
    Case(name="gaps", measure=gaps.measure, models=("qwen",)),
    Case(name="prefix", measure=prefix.measure, models=("qwen",)),
    Case(name="depth", measure=depth.measure, models=("qwen",)),
    Case(name="http", measure=over_http.measure),
    Case(name="masks", measure=masks.measure),
    Case(name="batch", measure=batch.measure, models=("qwen",), cut="even for answers"),
    Case(name="long_prefill", measure=prefill.measure_long, models=("qwen",), cut="even for prompts"),
    Case(name="planned", measure=planned.measure, models=("qwen",), cut="planned"),
    Case(name="ranks", measure=ranks.measure, models=("smollm2",), layouts=(TWO_THREADS, TWO_RANKS)),
)
SIMULATED, EXPERTS = "simulated", "experts"
WITHOUT_LAB = frozenset({SIMULATED, EXPERTS})
ALONE: dict[str, Callable[[Effort], Figures]] = {
    SIMULATED: simulated.measure,
    EXPERTS: experts.measure,
    "losses": losses.measure,
}
"""Cases with clusters of their own, which need no model from outside."""
NAMES = (*(case.name for case in CASES), *ALONE)
