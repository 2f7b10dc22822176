"""Two clusters with the same model, each in a lab of its own and warm, to be measured in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.bench.cluster import Cluster, running_cluster
from tests.bench.layout import Layout
from tests.bench.models import BenchModel
from tests.bench.placement import Placement

Layouts = tuple[Layout, Layout]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The two clusters that a ratio is made of."""

    model: BenchModel
    one: Cluster
    two: Cluster

    @property
    def clusters(self) -> tuple[Cluster, Cluster]:
        """Both, in order."""
        return self.one, self.two


@contextmanager
def running_pair(model: BenchModel, layouts: Layouts, placement: Placement) -> Iterator[Pair]:
    """Both clusters for the time of the block."""
    first, second = layouts
    with running_cluster(model, first, placement) as one, running_cluster(model, second, placement) as two:
        yield Pair(model=model, one=one, two=two)
