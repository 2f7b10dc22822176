"""Whether a stage goes with the model and the devices it is meant for."""

from __future__ import annotations

from collections.abc import Sequence

from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import DeviceFacts
from layerline.models.sizes import kv_bytes_per_token, stage_weights_bytes, workspace_bytes
from layerline.models.spec import ModelSpec
from layerline.plan import StageSpec
from layerline.units import format_bytes


def check_memory_fits(spec: StageSpec, model: ModelSpec, devices: Sequence[DeviceFacts], node: str) -> None:
    """PlanDoesNotFitError if a device's share of the stage is more than models may take there.

    PlanInvalidError if the model has no such layers or the node no such device.
    """
    if spec.last_layer >= model.layers:
        message = f"Node {node} was to load layer {spec.last_layer} of {spec.model}, which has {model.layers} layers."
        raise PlanInvalidError(message, node=node, remedy="Make the plan anew.")
    share_bytes = stage_bytes(spec, model) // len(spec.devices)
    budgets = {device.device: device.budget_bytes for device in devices}
    for device in spec.devices:
        if device not in budgets:
            message = f"Node {node} has no device {device}, only {', '.join(budgets)}."
            raise PlanInvalidError(message, node=node, remedy="Make the plan anew.")
        if share_bytes > budgets[device]:
            raise PlanDoesNotFitError(
                f"Layers {spec.first_layer} to {spec.last_layer} of {spec.model} need {format_bytes(share_bytes)} on "
                f"{device} of node {node}, where {format_bytes(budgets[device])} are available.",
                node=node,
                remedy="Give it fewer layers, give the node more --memory, or close other programs there.",
            )


def stage_bytes(spec: StageSpec, model: ModelSpec) -> int:
    """Bytes that the stage takes on all its devices together: weights, KV pages and workspace."""
    layers = spec.last_layer - spec.first_layer + 1
    has_output = spec.last_layer == model.layers - 1
    weights_bytes = stage_weights_bytes(model, spec.first_layer, spec.last_layer, spec.dtype)
    kv_bytes = kv_bytes_per_token(model, layers, spec.held_kv_dtype) * spec.pages * spec.page_tokens
    return weights_bytes + kv_bytes + workspace_bytes(model, spec.max_rows, spec.dtype, has_output=has_output)
