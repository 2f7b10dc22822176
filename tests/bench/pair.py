"""One node and two nodes with the same model, each in a lab of its own and warm, to be measured in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.bench.cluster import Cluster, running_cluster
from tests.bench.models import BenchModel
from tests.bench.placement import AS_USUAL, Placement


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The two clusters that a ratio is made of."""

    model: BenchModel
    one: Cluster
    two: Cluster

    @property
    def clusters(self) -> tuple[Cluster, Cluster]:
        """Both, the smaller first."""
        return self.one, self.two


@contextmanager
def running_pair(model: BenchModel, placement: Placement = AS_USUAL) -> Iterator[Pair]:
    """Both clusters for the time of the block."""
    with (
        running_cluster(model, placement, nodes=1) as one,
        running_cluster(model, placement, nodes=2) as two,
    ):
        yield Pair(model=model, one=one, two=two)
