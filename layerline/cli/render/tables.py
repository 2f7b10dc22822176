"""Nodes and plans as tables. Pure: what is printed, and how wide, is the caller's.

Cells are Text and never markup, since names come from other machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from layerline.cli.render.sentences import devices_text, layers_text, needed_bytes
from layerline.facts import DeviceFacts, NodeFacts
from layerline.printable import printable_lines
from layerline.reports import NodeReport, NodesReport, PlanReport, StageReport
from layerline.units import format_bytes, format_seconds


def nodes_table(report: NodesReport) -> Table:
    """Every node, one row each."""
    return make_table(("NAME", "ID", "ADDRESSES", "DEVICES", "VERSION", "STATE"), map(_node_row, report.nodes))


def plan_table(plan: PlanReport) -> Table:
    """Every stage, one row each; memory is what the stage needs."""
    head = ("NODE", "LAYERS", "DEVICES", "WEIGHTS", "KV", "WORKSPACE", "TOTAL", "MAY TAKE", "WHY")
    return make_table(head, map(_stage_row, plan.stages))


def device_line(device: DeviceFacts) -> str:
    """A device, its memory for models, and its speeds if they were measured."""
    parts = [f"{device.device}: {device.name}"]
    if device.threads:
        parts.append("1 thread" if device.threads == 1 else f"{device.threads} threads")
    parts.append(f"{device.kernels} kernels" if device.kernels else "no kernels")
    parts.append(f"{format_bytes(device.budget_bytes)} of {format_bytes(device.total_bytes)}")
    if device.matrix_flops_per_s:
        parts.append(f"{device.matrix_flops_per_s / 1e12:.3g} TFLOP/s")
    if device.memory_bytes_per_s:
        parts.append(f"{device.memory_bytes_per_s / 1e9:.3g} GB/s")
    return ", ".join(parts)


def all_reduce_line(facts: NodeFacts) -> str:
    """How long the devices of a node take to sum what each of them has."""
    return f"all-reduce between them {format_seconds(facts.all_reduce_us / 1e6)}"


def make_table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with these titles and cells."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for title in head:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable_lines(cell)) for cell in row))
    return table


def _node_row(node: NodeReport) -> Sequence[str]:
    facts = node.facts
    if facts is None:
        return (node.name, "", node.address, "", "", f"cannot be used: {node.unusable}")
    addresses = tuple(dict.fromkeys((*((node.address,) if node.address else ()), *facts.addresses)))
    held = f", held by {facts.held_by.coordinator}" if facts.held_by else ""
    state = f"cannot be used: {node.unusable}" if node.unusable else f"{facts.state}{held}"
    lines = [*map(device_line, facts.devices), *((all_reduce_line(facts),) if facts.all_reduce_us else ())]
    devices = "\n".join(lines)
    return (node.name, facts.node_id, "\n".join(addresses), devices, facts.version, state)


def _stage_row(stage: StageReport) -> Sequence[str]:
    sizes = (stage.weights_bytes, stage.kv_bytes, stage.workspace_bytes, needed_bytes(stage), stage.budget_bytes)
    layers = layers_text(stage.first_layer, stage.last_layer)
    return (stage.node, layers, devices_text(stage), *map(format_bytes, sizes), stage.why)
