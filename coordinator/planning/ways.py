"""How devices compute: by the kernels or by torch, and what they hold weights in.

Who has the kernels computes by them and holds weights as they are stored. Torch can hold them so as well, but few
devices multiply them fast then; where nobody says what is wanted the others hold them in the dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from layerline.facts import DeviceFacts, NodeFacts
from layerline.models.held import WeightForm
from layerline.plan import Computing
from layerline.plan_request import PlanRequest


@dataclass(frozen=True, slots=True)
class Way:
    """What weights are held in, and the precision of the kernels; empty: torch computes."""

    weights: str
    precision: str

    def form(self, dtype: str) -> WeightForm:
        """What the weights are where stages hand each other `dtype`."""
        return WeightForm(dtype=dtype, weights=self.weights, kernels=bool(self.precision))


def has_kernels(device: DeviceFacts) -> bool:
    """Whether the kernels can compute on a device; those of a GPU multiply, but torch does the rest."""
    return device.kind == "cpu" and bool(device.kernels)


def multiplies_stored(device: DeviceFacts, way: Way, *, in_blocks: bool) -> bool:
    """Whether a device is as fast with weights as they are stored as their bytes let it be.

    `in_blocks` says whether all of them are, or plain numbers: a GPU has no kernels for scales of groups.
    """
    return bool(way.precision) or (in_blocks and device.kind != "cpu" and bool(device.kernels))


def computing_of(nodes: Iterable[NodeFacts]) -> Computing:
    """Who computes if every device of the nodes does so in its own way."""
    found = {has_kernels(device) for node in nodes for device in node.devices}
    if len(found) == 2:
        return "each"
    return "kernels" if True in found else "torch"


def way_of(
    device: DeviceFacts, asked: PlanRequest, resolved: PlanRequest, computing: Computing, *, in_blocks: bool
) -> Way | None:
    """How a device computes what is asked for; None if it is not to. `in_blocks` is as in `multiplies_stored`."""
    if has_kernels(device) and computing != "torch":
        return Way(resolved.weights, resolved.precision)
    if computing == "kernels":
        return None
    own = Way("stored", "")
    is_fast = multiplies_stored(device, own, in_blocks=in_blocks)
    return Way(asked.weights or (own.weights if is_fast else resolved.dtype), "")
