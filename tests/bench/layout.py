"""The machines of a cluster: how many, and what devices the node on each has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """`nodes` nodes with `device` as `layerline node --device` has it; every stage is split over `ranks` of them.

    A node of one thread has a core of its own, one of more has all of them.
    """

    nodes: int = 1
    device: str = "cpu:1"
    ranks: int = 1

    def core_of(self, node: int) -> int | None:
        """The only core of node number `node`, None if it has all."""
        return node if self.device == "cpu:1" else None

    @property
    def threads(self) -> int:
        """How many threads a node has, all its devices together."""
        return sum(int(device.rpartition(":")[2]) for device in self.device.split(","))

    @property
    def words(self) -> list[str]:
        """What the coordinator is told of it."""
        return ["--tensor-parallel", str(self.ranks)] if self.ranks > 1 else []


ONE_NODE = Layout()
TWO_NODES = Layout(nodes=2)
TWO_THREADS = Layout(device="cpu:2")
TWO_RANKS = Layout(device="cpu:1,cpu:1", ranks=2)
