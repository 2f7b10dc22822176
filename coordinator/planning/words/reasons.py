"""Why a stage is as it is, and why a node has none: one clause each."""

from __future__ import annotations

from coordinator.planning.decision import (
    AllReduceNotMeasured,
    AsAskedFor,
    Assignment,
    ByHand,
    DegreeReason,
    Faster,
    FitsOne,
    HoldsAll,
    LeftOut,
    LeftOutReason,
    NoDevice,
    NotReady,
    NotWorthTheHop,
    Part,
    Roomier,
    StageReason,
    TooFewDevices,
    TooLargeForOne,
    TooSlow,
    TooSmall,
)
from coordinator.planning.device_group import DeviceGroup
from coordinator.planning.words.experts import where_experts
from layerline.units import format_bytes, format_seconds


def stage_why(assignment: Assignment) -> str:
    """Why a device group has its layers, so many devices if its node has a choice, and experts where they are."""
    clauses = [_why_layers(assignment.reason, assignment)]
    if assignment.degree_reason is not None:
        clauses.append(_why_devices(assignment.degree_reason, assignment.group))
    if assignment.experts_reason is not None:
        clauses.append(where_experts(assignment.experts_reason))
    return "; ".join(clauses)


def left_out_sentence(left_out: LeftOut) -> str:
    """Why a node has no stage."""
    return f"{left_out.node.name} is left out: {_why_left_out(left_out.reason)}."


def device_count(group: DeviceGroup) -> str:
    """How many devices there are."""
    return _devices(len(group.ranks))


def _why_layers(reason: StageReason, assignment: Assignment) -> str:
    match reason:
        case ByHand():
            return "as --layers says"
        case HoldsAll(is_only=True):
            return "the only node that can be used, and it holds the whole model"
        case HoldsAll():
            return "the fastest node that holds the whole model"
        case Part(time_s, stages_s, most_layers):
            full = len(assignment.layers) == most_layers
            room = "as many layers as it has memory for" if full else f"memory for {most_layers} layers"
            if not all(rank.is_measured for rank in assignment.group.ranks):
                return f"{room}; its speed is not measured yet and taken to be the slowest measured"
            if not assignment.group.is_measured:
                return (
                    f"{room}; the time of an all-reduce between its devices is not measured, so splitting counts as"
                    " slower"
                )
            return f"{format_seconds(time_s)} of {format_seconds(stages_s)} a token; {room}"


def _why_devices(reason: DegreeReason, group: DeviceGroup) -> str:
    own = device_count(group)
    match reason:
        case AsAskedFor():
            return f"{own}, as --tensor-parallel says"
        case AllReduceNotMeasured(devices):
            own = "one device" if len(group.ranks) == 1 else own
            return f"{own}, as the time of an all-reduce between {_devices(devices)} is not measured"
        case Faster(alone_s, devices, group_s, all_reduce_s):
            own = "one device" if len(group.ranks) == 1 else own
            return (
                f"{own}, as a token takes {format_seconds(alone_s)} on one and {format_seconds(group_s)} on {devices},"
                f" with two all-reduces of {format_seconds(all_reduce_s)} a layer"
            )
        case TooLargeForOne(needed_bytes, offered_bytes):
            return (
                f"{own}, as it takes {format_bytes(needed_bytes)} on one device and none offers more than"
                f" {format_bytes(offered_bytes)}"
            )
        case Roomier(tokens, alone_tokens):
            return f"{own}, for KV pages of {tokens} tokens where one device has room for {alone_tokens}"


def _why_left_out(reason: LeftOutReason) -> str:
    match reason:
        case NotReady(state):
            return f"it is {state}"
        case NoDevice():
            return "it offers no device"
        case TooFewDevices(asked):
            return f"it has no {asked} devices of one kind, and the others hold the model"
        case TooSmall(offered_bytes, least_bytes):
            offered, least = format_bytes(offered_bytes), format_bytes(least_bytes)
            return f"the {offered} it offers are too little for one layer, which needs {least}"
        case FitsOne(node):
            return f"the model fits {node} alone"
        case TooSlow(layer_s, slowest_used_s):
            return (
                f"it would only slow the others down, as a layer takes {format_seconds(layer_s)} there and at most"
                f" {format_seconds(slowest_used_s)} on them"
            )
        case NotWorthTheHop(hop_s):
            return f"the others hold the model, and a further hop of {format_seconds(hop_s)} would outweigh its help"


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"
