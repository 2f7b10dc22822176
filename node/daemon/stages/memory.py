"""Whether a stage fits its devices beside the stages that are there already, asked before anything is loaded.

Each rank has its own share on its own device. What a stage takes is what
`layerline.models.sizes` says, which the planner asks too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import DeviceFacts
from layerline.models.sizes import Described, ModelSizes
from layerline.plan import StageSpec
from layerline.units import format_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class RankBytes:
    """What one rank takes on its device: always, and while it computes."""

    held: int  # weights, KV pages and slots
    workspace: int

    @property
    def needed(self) -> int:
        """All of it."""
        return self.held + self.workspace


@dataclass(frozen=True, kw_only=True, slots=True)
class StageBytes:
    """What a stage takes on each of its devices; `stage` is what to call it."""

    stage: str
    on: Mapping[str, RankBytes]


def check_memory_fits(
    spec: StageSpec,
    model: Described,
    devices: Sequence[DeviceFacts],
    node: str,
    others: Sequence[StageBytes] = (),
) -> None:
    """PlanDoesNotFitError if what a rank takes is more than models may take on its device, beside `others`.

    PlanInvalidError if the model has no such layers or cannot be split so, or the node has no such device.
    """
    if spec.last_layer >= model.spec.layers:
        message = (
            f"Node {node} was to load layer {spec.last_layer} of {spec.model}, which has {model.spec.layers} layers."
        )
        raise PlanInvalidError(message, node=node, remedy="Make the plan anew.")
    budgets = {device.device: device.budget_bytes for device in devices}
    for device, rank in device_bytes(spec, model).items():
        if device not in budgets:
            message = f"Node {node} has no device {device}, only {', '.join(budgets)}."
            raise PlanInvalidError(message, node=node, remedy="Make the plan anew.")
        if rank.needed + _needed_by_all(device, others) > budgets[device]:
            raise _does_not_fit(spec, rank, device, budgets[device], node, others)


def fits(spec: StageSpec, model: Described, devices: Sequence[DeviceFacts], others: Sequence[StageBytes]) -> bool:
    """Whether a stage that has passed `check_memory_fits` alone also fits beside `others`."""
    budgets = {device.device: device.budget_bytes for device in devices}
    return all(
        rank.needed + _needed_by_all(device, others) <= budgets[device]
        for device, rank in device_bytes(spec, model).items()
    )


def _needed_by_all(device: str, others: Sequence[StageBytes]) -> int:
    return sum(other.on[device].needed for other in others if device in other.on)


def _does_not_fit(
    spec: StageSpec,
    rank: RankBytes,
    device: str,
    budget_bytes: int,
    node: str,
    others: Sequence[StageBytes],
) -> PlanDoesNotFitError:
    holding = [f"{other.stage} ({format_bytes(other.on[device].needed)})" for other in others if device in other.on]
    beside = f" beside {' and '.join(holding)}" if holding else ""
    return PlanDoesNotFitError(
        f"Layers {spec.first_layer} to {spec.last_layer} of {spec.model} need {format_bytes(rank.needed)} on "
        f"{device} of node {node}{beside}, where {format_bytes(budget_bytes)} are available.",
        node=node,
        remedy="Give it fewer layers, give the node more --memory, or close other programs there.",
    )


def device_bytes(spec: StageSpec, model: Described) -> Mapping[str, RankBytes]:
    """What the stage takes on each of its devices; PlanInvalidError if the model cannot be split so."""
    sizes = ModelSizes.of_stage(model, spec)
    ranks = [sizes.of_rank(part) for part in sizes.parts(spec.sharing)]
    taken = {device: _rank_bytes(spec, rank) for device, rank in zip(spec.devices, ranks, strict=True)}
    if spec.expert_device:
        layers = range(spec.first_layer, spec.last_layer + 1)
        beside = sum(rank.beside_bytes(layers) for rank in ranks)
        taken[spec.expert_device] = RankBytes(held=beside, workspace=0)
    return taken


def _rank_bytes(spec: StageSpec, sizes: ModelSizes) -> RankBytes:
    layers = range(spec.first_layer, spec.last_layer + 1)
    kv_bytes = sizes.kv_bytes_per_token(layers) * spec.pages * spec.page_tokens
    kv_bytes += sum(sizes.slot_bytes[layers.start : layers.stop])
    has_output = layers.stop == len(sizes.layers)
    workspace = sizes.workspace_bytes(spec.max_rows, has_output=has_output)
    return RankBytes(held=sizes.weights_bytes(layers) + kv_bytes, workspace=workspace)
