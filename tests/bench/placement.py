"""Where a model lies on the nodes of a cluster, how exactly they compute, and what their processors may use."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.models import BenchModel


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`first_layers` are those of the first of two nodes, 0 as the model says.

    `instructions` bounds what oneDNN uses (its ONEDNN_MAX_CPU_ISA), empty is all that there is: a machine with matrix
    units can so stand for one without. `precision` is what the coordinator is told as --precision, nothing if empty.
    """

    first_layers: int = 0
    instructions: str = ""
    precision: str = ""

    def words(self, model: BenchModel, nodes: tuple[str, ...]) -> list[str]:
        """What the coordinator is told, so that the model is placed on one or two nodes."""
        precision = ["--precision", self.precision] if self.precision else []
        if len(nodes) == 1:
            return precision
        first_layers = self.first_layers or model.first_layers
        layers = f"{nodes[0]}=0-{first_layers - 1},{nodes[1]}={first_layers}-{model.layers - 1}"
        return ["--layers", layers, *precision]

    @property
    def environment(self) -> dict[str, str]:
        """What the nodes are started with."""
        return {"ONEDNN_MAX_CPU_ISA": self.instructions} if self.instructions else {}
