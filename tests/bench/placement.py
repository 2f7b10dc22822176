"""Where a model lies on the nodes of a cluster, and what their processors may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`first_layers` are those of the first of two nodes, 0 an equal share.

    `instructions` bounds what oneDNN uses (its ONEDNN_MAX_CPU_ISA), empty is all that there is: a machine with matrix
    units can so stand for one without.
    """

    first_layers: int = 0
    instructions: str = ""

    def layers(self, count: int, nodes: tuple[str, ...]) -> str:
        """The text for --layers that places `count` layers on `nodes`."""
        bounds = [count * index // len(nodes) for index in range(len(nodes) + 1)]
        if self.first_layers and len(nodes) == 2:
            bounds[1] = self.first_layers
        return ",".join(
            f"{node}={first}-{end - 1}" for node, first, end in zip(nodes, bounds, bounds[1:], strict=False)
        )

    @property
    def environment(self) -> dict[str, str]:
        """What the nodes are started with."""
        return {"ONEDNN_MAX_CPU_ISA": self.instructions} if self.instructions else {}


HALVES = Placement()
