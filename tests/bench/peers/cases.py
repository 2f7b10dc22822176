"""The cases by name: which there are, in which order, on which machines, and with which models each is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from layerline.plan_request import PlanRequest
from tests.bench.effort import Effort
from tests.bench.figures import Figures
from tests.bench.layout import ONE_NODE, TWO_NODES, TWO_THREADS, Layout
from tests.bench.models import MODELS, BenchModel
from tests.bench.peers import contest, load, share_of_read
from tests.bench.peers.contest import Contest
from tests.bench.placement import Placement

PRECISION = "precision"
AS_USUAL = Placement()


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A case that is measured on machines of `layout`. Its name begins that of its ratio."""

    name: str
    measure: Callable[[Contest, str, Effort], Figures]
    models: tuple[str, ...] = tuple(MODELS)
    layout: Layout = ONE_NODE
    placement: Placement = AS_USUAL

    @property
    def why_not(self) -> str:
        """Why layerline cannot do it; empty if it can."""
        if not self.placement.precision or PRECISION in {field.name for field in fields(PlanRequest)}:
            return ""
        return f"layerline's PlanRequest has no field '{PRECISION}' yet"


CASES = (
    Case(name="decode", measure=contest.decode),
    Case(name="decode_share_of_read", measure=share_of_read.measure),
    Case(name="prefill", measure=contest.prefill),
    Case(name="decode16", measure=contest.crowd, models=("qwen",)),
    Case(name="decode_t2", measure=contest.decode, layout=TWO_THREADS),
    Case(name="prefill_fast", measure=contest.prefill, placement=Placement(precision="fast")),
    Case(name="decode_2n", measure=contest.decode, models=("qwen",), layout=TWO_NODES),
    Case(name="decode16_2n", measure=contest.crowd, models=("qwen",), layout=TWO_NODES),
    Case(name="prefill2048_2n", measure=contest.long_prefill, models=("qwen",), layout=TWO_NODES),
)
ALONE: dict[str, Callable[[BenchModel, str, Effort], Figures]] = {"load": load.measure}
"""Cases that start nodes of their own, again and again."""
NAMES = (*(case.name for case in CASES), *ALONE)
