"""Why a model cannot be placed, in numbers: needed, available, what each node offers, and who was left out."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.planning.candidates import Candidates
from coordinator.planning.decision import Misfit, TooSmall
from coordinator.planning.footprint import MIDDLE
from coordinator.planning.words.reasons import left_out_sentence
from layerline.errors import PlanDoesNotFitError, PlanInvalidError
from layerline.facts import NodeFacts
from layerline.plan import form_in_words
from layerline.units import format_bytes

REMEDY = (
    "Give nodes more memory with --memory, ask for a shorter --context, start layerline on another machine,"
    " or take a smaller model."
)


def refusal(misfit: Misfit) -> PlanDoesNotFitError | PlanInvalidError:
    """The error that says why."""
    if misfit.fits_otherwise:
        return _not_so_shared(misfit)
    return _layers_do_not_fit(misfit) if misfit.owners else _does_not_fit(misfit)


def _does_not_fit(misfit: Misfit) -> PlanDoesNotFitError:
    candidates, pages = misfit.candidates, misfit.sequence_pages
    usable = [node for node in misfit.problem.nodes if node.state == "ready"]
    helping = [node for node in usable if candidates.helps(node, pages)]
    offered_bytes = sum(candidates.offered_bytes(node) for node in usable)
    needed_bytes = _needed_bytes(misfit, max(1, len(helping))) + _more_workspace_bytes(candidates, helping)
    pieces = ", in pieces too large for what each offers" if needed_bytes <= offered_bytes else ""
    return PlanDoesNotFitError(
        f"{misfit.problem.request.model} does not fit: with a context of {misfit.context_tokens} tokens it needs"
        f" {format_bytes(needed_bytes)} over {_count(max(1, len(helping)))}, and {_count(len(usable))}"
        f" offer{'s' if len(usable) == 1 else ''} {format_bytes(offered_bytes)}: {_offers(candidates, usable)}{pieces}."
        f" {_parts(misfit)}{_left_out(misfit)}",
        remedy=f"{REMEDY}{_remedy_for_experts(misfit)}",
    )


def _remedy_for_experts(misfit: Misfit) -> str:
    """That experts may lie on the CPU of a node which offers its GPUs alone; empty if that is no way out."""
    problem = misfit.problem
    has_experts = any(kind.feed_forward.experts for kind in problem.spec.kinds)
    without = [
        node.name
        for node in problem.nodes
        if any(device.kind == "cuda" for device in node.devices)
        and not any(device.kind == "cpu" for device in node.devices)
    ]
    if not has_experts or not without or problem.request.expert_device == "none":
        return ""
    return f" With --device cuda:0,cpu on {' and '.join(without)} experts may lie on the CPU."


def _not_so_shared(misfit: Misfit) -> PlanInvalidError:
    """The refusal of how devices are to share layers where the model fits, but on none of the nodes that can do so."""
    request, candidates = misfit.problem.request, misfit.candidates
    options = [
        *([("--tensor-parallel", str(request.tensor_parallel))] if request.tensor_parallel else []),
        *([("--experts", "spread")] if request.experts == "spread" else []),
        *([("--expert-device", "cpu")] if request.expert_device == "cpu" else []),
    ]
    able = [node for node in misfit.problem.nodes if candidates.groups_of(node)]
    named = " and ".join(" ".join(option) for option in options)
    who = "with so many devices of one kind" if options[0][0] == "--tensor-parallel" else "that can do so"
    return PlanInvalidError(
        f"{named} cannot be followed: {request.model} fits {'these' if misfit.owners else 'the other'} nodes"
        f"{' otherwise' if misfit.owners else ''}, and those {who} are of no use to it"
        f" ({_offers(candidates, able) or 'there are none'}). {_parts(misfit)}",
        remedy=f"Give these more memory with --memory, or leave {' and '.join(name for name, _ in options)} out.",
    )


def _layers_do_not_fit(misfit: Misfit) -> PlanDoesNotFitError:
    candidates, pages = misfit.candidates, misfit.sequence_pages
    owned = [
        (range(stage.first_layer, stage.last_layer + 1), owner)
        for stage, owner in zip(misfit.problem.request.layers, misfit.owners, strict=True)
    ]
    needs = [_least_needed_bytes(candidates, owner, layers, pages) for layers, owner in owned]
    short = [
        f"{_layers(layers)} {'needs' if len(layers) == 1 else 'need'} {format_bytes(needed)} and {owner.name} offers"
        f" {format_bytes(candidates.offered_bytes(owner))}"
        for needed, (layers, owner) in zip(needs, owned, strict=True)
        if candidates.group_for(owner, layers, pages) is None
    ]
    available = sum(candidates.offered_bytes(owner) for _, owner in owned)
    return PlanDoesNotFitError(
        f"The layers given by hand do not fit with a context of {misfit.context_tokens} tokens: {'; '.join(short)}"
        f" (in all {format_bytes(sum(needs))} needed, {format_bytes(available)} available).",
        remedy=f"Give that node fewer layers, or leave out --layers. {REMEDY}",
    )


def _needed_bytes(misfit: Misfit, nodes: int) -> int:
    """What the model takes when cut into as many stages as there are nodes."""
    footprint, pages = misfit.problem.footprint, misfit.sequence_pages
    count = len(footprint.layers)
    if nodes == 1 or count == 1:
        return footprint.needed_bytes(footprint.layers, pages)
    between = min(nodes, count) - 2
    middle, halves = footprint.workspace_bytes(MIDDLE), (footprint.layers[:1], footprint.layers[1:])
    return sum(footprint.needed_bytes(layers, pages) for layers in halves) + between * middle


def _more_workspace_bytes(candidates: Candidates, nodes: Sequence[NodeFacts]) -> int:
    """What stages over all devices of `nodes` take beside, since each device needs workspace of its own."""
    widest = [max(candidates.groups_of(node), key=lambda group: group.budget_bytes) for node in nodes]
    several = [group for group in widest if len(group.ranks) > 1]
    alone = [candidates.problem.footprint_of(group.way).workspace_bytes(MIDDLE) for group in several]
    return sum(group.workspace_bytes(MIDDLE) for group in several) - sum(alone)


def _least_needed_bytes(candidates: Candidates, node: NodeFacts, layers: range, pages: int) -> int:
    """What layers take on one device of a node, in the form that takes least there."""
    ways = {group.way for group in candidates.groups_of(node)} or set(candidates.problem.ways)
    return min(candidates.problem.footprint_of(way).needed_bytes(layers, pages) for way in ways)


def _parts(misfit: Misfit) -> str:
    footprint, pages = misfit.problem.footprint, misfit.sequence_pages
    layers, sizes = footprint.layers, footprint.sizes
    form = form_in_words(sizes.form.weights)
    kv_bytes = format_bytes(footprint.kv_bytes(layers, pages))
    held = f"its KV pages {kv_bytes} in {sizes.kv_dtype}"
    if sizes.model.is_recurrent:
        held = f"its KV pages, in {sizes.kv_dtype}, and recurrent states {kv_bytes}"
    return (
        f"Its weights take {format_bytes(footprint.weights_bytes(layers))} {form}, {held}; a node needs at least"
        f" {format_bytes(footprint.least_bytes(pages))} to hold one of its {len(layers)} layers."
    )


def _left_out(misfit: Misfit) -> str:
    """Who could not take part at all, and why; what the others offer is told anyway."""
    others = [left_out_sentence(each) for each in misfit.left_out if not isinstance(each.reason, TooSmall)]
    return "".join(f" {sentence}" for sentence in (*others, *misfit.problem.notes))


def _offers(candidates: Candidates, nodes: Sequence[NodeFacts]) -> str:
    return ", ".join(f"{node.name} {format_bytes(candidates.offered_bytes(node))}" for node in nodes) or "none is ready"


def _count(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _layers(layers: range) -> str:
    first, last = layers[0], layers[-1]
    return f"layer {first}" if first == last else f"layers {first}-{last}"
