"""Why a plan is as it is, in sentences with numbers for the person who reads it."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.planning.crew import Crew
from coordinator.planning.footprint import PAGE_TOKENS, WHOLE, Footprint
from coordinator.planning.hand import Hand
from coordinator.planning.offer import LayerRange
from coordinator.planning.splitting import Split
from coordinator.planning.stages import Assignment
from layerline.facts import NodeFacts
from layerline.units import format_bytes, format_seconds


def alone_why(crew: Crew) -> str:
    """Why a node has the whole model."""
    if sum(1 for hands in crew.hands if hands) == 1:
        return "the only node that can be used, and it holds the whole model"
    return "the fastest node that holds the whole model"


def share_why(share: LayerRange, split: Split, hand: Hand) -> str:
    """Why `hand` takes its share."""
    most = share.offer.most_layers(share.ends)
    room = "as many layers as it has memory for" if share.layers == most else f"memory for {most} layers"
    if not all(rank.is_measured for rank in hand.ranks):
        return f"{room}; its speed is not measured yet and taken to be the slowest measured"
    if not hand.is_measured:
        return f"{room}; the time of an all-reduce between its devices is not measured, so splitting counts as slower"
    own_s, all_s = (
        split.tick_s * sum(each.ticks for each in ranges) for ranges in ([share], split.chosen.choice.ranges)
    )
    return f"{format_seconds(own_s)} of {format_seconds(all_s)} a token; {room}"


def whole_notes(footprint: Footprint, hand: Hand) -> list[str]:
    """Why there is one stage."""
    needed, offered = hand.needed_bytes(footprint, footprint.spec.layers, WHOLE), hand.budget_bytes
    name, devices = hand.node.name, len(hand.ranks)
    where = f"{name} offers" if devices == 1 else f"{devices} devices of {name} offer"
    return [f"The model needs {format_bytes(needed)} and {where} {format_bytes(offered)}, so it is not split."]


def split_notes(footprint: Footprint, crew: Crew, split: Split) -> list[str]:
    """Why there are several stages, what speed to expect, and what of it was given for KV pages."""
    partition = split.chosen.choice
    notes = [f"{_too_large(footprint, crew)}, so it is split."]
    used = [crew.hands[share.offer.node][share.offer.group] for share in partition.ranges]
    if all(hand.is_measured for hand in used):
        hops = len(partition.ranges) + 1
        through_s, hop_s = partition.through * split.tick_s, partition.hop * split.tick_s
        notes.append(
            f"Expected for one stream: {format_seconds(through_s)} a token, of which {hops} hops take"
            f" {format_seconds(hop_s)} each, so {1 / through_s:.3g} tokens/s."
        )
    return notes + _moved_notes(split)


def _too_large(footprint: Footprint, crew: Crew) -> str:
    """Why no node has the whole model, by the hand that offers most."""
    layers, hands = footprint.spec.layers, [hand for own in crew.hands for hand in own]
    largest = max(hands, key=lambda hand: hand.budget_bytes)
    if len(largest.ranks) == 1:
        needed, most = footprint.needed_bytes(layers, WHOLE), largest.budget_bytes
        return f"The model needs {format_bytes(needed)} on one node and no node offers more than {format_bytes(most)}"
    tightest = max(largest.ranks, key=lambda rank: rank.missing_bytes(footprint, layers, WHOLE))
    needed, offered = tightest.footprint(footprint).needed_bytes(layers, WHOLE), tightest.device.budget_bytes
    return (
        f"The model does not fit one node: over {len(largest.ranks)} devices of {largest.node.name} it needs"
        f" {format_bytes(needed)} on {tightest.device.device}, which offers {format_bytes(offered)}"
    )


def left_out_notes(footprint: Footprint, crew: Crew, assignments: Sequence[Assignment], hop_s: float) -> list[str]:
    """A sentence for each node that has no stage."""
    used_ids = {assignment.hand.node.node_id for assignment in assignments}
    return [
        f"{node.name} is left out: {_left_out_reason(footprint, crew, node, assignments, hop_s)}."
        for node in crew.nodes
        if node.node_id not in used_ids
    ]


def context_notes(context_tokens: int, wished_tokens: int) -> list[str]:
    """What became of the wish for a long context."""
    if context_tokens == wished_tokens:
        return []
    return [f"The context is {context_tokens} tokens instead of {wished_tokens}, as more KV pages do not fit."]


def _moved_notes(split: Split) -> list[str]:
    """What more KV pages cost, if they do."""
    if split.chosen is split.fastest:
        return []
    slower = split.chosen.cost / split.fastest.cost - 1
    return [
        f"Layers are moved to where there is memory for their KV pages: the fastest split would hold"
        f" {split.fastest.pages * PAGE_TOKENS} tokens, this one {split.chosen.pages * PAGE_TOKENS}"
        f" and is {slower:.1%} slower."
    ]


def _left_out_reason(
    footprint: Footprint, crew: Crew, node: NodeFacts, assignments: Sequence[Assignment], hop_s: float
) -> str:
    hands = crew.hands_of(node)
    if node.state != "ready":
        return f"it is {node.state}"
    if not node.devices:
        return "it offers no device"
    if not hands:
        return f"it has no {crew.asked} devices of one kind, and the others hold the model"
    if not crew.helps(node, footprint):
        offered, least = format_bytes(crew.offered_bytes(node)), format_bytes(footprint.least_bytes)
        return f"the {offered} it offers are too little for one layer, which needs {least}"
    if len(assignments) == 1:
        return f"the model fits {assignments[0].hand.node.name} alone"
    slowest_used_s = max(assignment.hand.layer_s for assignment in assignments)
    if hands[0].layer_s > slowest_used_s:
        return (
            f"it would only slow the others down, as a layer takes {format_seconds(hands[0].layer_s)} there and at most"
            f" {format_seconds(slowest_used_s)} on them"
        )
    return f"the others hold the model, and a further hop of {format_seconds(hop_s)} would outweigh its help"
