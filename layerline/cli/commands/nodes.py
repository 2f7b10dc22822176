"""The surface of `layerline nodes`."""

from __future__ import annotations

from typing import Any

import click

from layerline.cli.command import Command
from layerline.cli.options import finding_of, finding_options

HELP = """List every node found: name, id, addresses, devices with memory and measured speed, version, state.

A node that cannot be used is listed too, with the reason. If there is no node at all, the error says what was looked
for and on which interfaces, and the exit code is 3."""

EPILOG = """
Examples:
  layerline nodes
  layerline nodes --node 192.168.1.5:7355 --json
"""


def _run(json: bool, **given: Any) -> None:
    from layerline.cli.overview import run_nodes  # noqa: PLC0415 - help must not load the client

    run_nodes(finding_of(given), as_json=json)


nodes = Command(
    "nodes",
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        click.Option(["--json"], is_flag=True, help="Print one object: nodes, searched. Sizes are in bytes."),
        *finding_options(),
    ],
)
