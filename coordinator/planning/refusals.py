"""Why a model does not fit, in numbers: needed, available, and what each node offers."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.planning.crew import Crew
from coordinator.planning.footprint import FIRST, LAST, MIDDLE, WHOLE, Footprint
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import NodeFacts
from layerline.plan import PlanRequest
from layerline.units import format_bytes

REMEDY = (
    "Give nodes more memory with --memory, ask for a shorter --context, start layerline on another machine,"
    " or take a smaller model."
)


def does_not_fit(footprint: Footprint, request: PlanRequest, context_tokens: int, crew: Crew) -> PlanDoesNotFitError:
    """The refusal to place the model on the nodes of `crew` with the least context that would do."""
    usable = [node for node in crew.nodes if node.state == "ready"]
    helping = [node for node in usable if crew.helps(node, footprint)]
    offered_bytes = sum(crew.offered_bytes(node) for node in usable)
    needed_bytes = _needed_bytes(footprint, max(1, len(helping))) + _more_workspace_bytes(footprint, crew, helping)
    pieces = ", in pieces too large for what each offers" if needed_bytes <= offered_bytes else ""
    return PlanDoesNotFitError(
        f"{request.model} does not fit: with a context of {context_tokens} tokens it needs"
        f" {format_bytes(needed_bytes)} over {_count(max(1, len(helping)))}, and {_count(len(usable))}"
        f" offer{'s' if len(usable) == 1 else ''} {format_bytes(offered_bytes)}: {_offers(crew, usable)}{pieces}."
        f" {_parts(footprint)}",
        remedy=REMEDY,
    )


def not_so_split(footprint: Footprint, request: PlanRequest, crew: Crew) -> PlanInvalidError:
    """The refusal of --tensor-parallel where the model fits, but on no node of `crew`, those with so many devices."""
    able = [node for node in crew.nodes if crew.hands_of(node)]
    return PlanInvalidError(
        f"--tensor-parallel {request.tensor_parallel} cannot be followed: {request.model} fits the other nodes, and"
        f" those with so many devices of one kind are of no use to it ({_offers(crew, able)}). {_parts(footprint)}",
        remedy="Give these more memory with --memory, or leave --tensor-parallel out.",
    )


def _needed_bytes(footprint: Footprint, nodes: int) -> int:
    """What the model takes when cut into as many stages as there are nodes."""
    layers = footprint.spec.layers
    if nodes == 1 or layers == 1:
        return footprint.needed_bytes(layers, WHOLE)
    between = min(nodes, layers) - 2
    ends_bytes = footprint.needed_bytes(1, FIRST) + footprint.needed_bytes(1, LAST)
    further_layers_bytes = (layers - 2) * (footprint.layer_bytes + footprint.kv_bytes(1))
    return ends_bytes + further_layers_bytes + between * footprint.workspace_bytes(MIDDLE)


def _more_workspace_bytes(footprint: Footprint, crew: Crew, nodes: Sequence[NodeFacts]) -> int:
    """What stages over all devices of `nodes` take beside, since each device needs workspace of its own."""
    widest = [max(crew.hands_of(node), key=lambda hand: hand.budget_bytes) for node in nodes]
    alone_bytes = footprint.workspace_bytes(MIDDLE)
    return sum(hand.workspace_bytes(footprint, MIDDLE) - alone_bytes for hand in widest if len(hand.ranks) > 1)


def _parts(footprint: Footprint) -> str:
    layers = footprint.spec.layers
    return (
        f"Its weights take {format_bytes(footprint.weights_bytes(layers, WHOLE))} in {footprint.dtype},"
        f" its KV pages {format_bytes(footprint.kv_bytes(layers))} in {footprint.kv_dtype}; a node needs at least"
        f" {format_bytes(footprint.least_bytes)} to hold one of its {layers} layers."
    )


def _offers(crew: Crew, nodes: Sequence[NodeFacts]) -> str:
    return ", ".join(f"{node.name} {format_bytes(crew.offered_bytes(node))}" for node in nodes) or "none is ready"


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"
