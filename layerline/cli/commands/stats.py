"""The surface of `layerline stats`."""

from __future__ import annotations

from typing import Any

import click

from layerline.cli.command import Command
from layerline.cli.options import coordinator_option

HELP = """Show how the work of a running coordinator goes, and what holds it up.

For each stage: how much of the time in which a step was in flight it computed, waited for its next frame, and waited
to send; its bubble is all in which it did not compute. For each link: what passed over it, and how long a frame is
on its way, which is an estimate. Then sequences, pages, and requests with their time in the queue, to the first
token and between tokens. It is of the last minute unless --since-start is given."""

EPILOG = """
Examples:
  layerline stats
  layerline stats --coordinator 192.168.1.5:7354 --since-start
  layerline stats --json
"""


def _run(coordinator: str | None, since_start: bool, json: bool, **_: Any) -> None:
    from layerline.cli.overview import run_stats  # noqa: PLC0415 - help must not load the client

    run_stats(coordinator, since_start=since_start, as_json=json)


stats = Command(
    "stats",
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        click.Option(["--json"], is_flag=True, help="Print one object, with both periods. Times are in seconds."),
        click.Option(["--since-start"], is_flag=True, help="Show all the time since the model was brought up."),
        coordinator_option("one found by mDNS"),
    ],
)
