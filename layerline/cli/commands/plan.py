"""The surface of `layerline plan`."""

from __future__ import annotations

from typing import Any

import click

from layerline.cli.command import Command
from layerline.cli.options import finding_of, finding_options, placement_options, plan_request_of

HELP = """Show which node would hold which layers of the model REF, and why; loads nothing.

For every stage it shows the memory for weights, for the KV cache of the context, and for workspace, beside what the
node may give. REF is the name of a model in the nodes' models folders, or a path on this machine."""

EPILOG = """
Examples:
  layerline plan Qwen2.5-7B-Instruct.gguf
  layerline plan qwen.gguf --context 32768 --dtype float32
  layerline plan qwen.gguf --layers desktop=0-17,laptop=18-27 --json
"""


def _run(ref: str, json: bool, **given: Any) -> None:
    from layerline.cli.overview import run_plan  # noqa: PLC0415 - help must not load the client

    run_plan(finding_of(given), plan_request_of(ref, given), as_json=json)


plan = Command(
    "plan",
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        click.Argument(["ref"]),
        click.Option(["--json"], is_flag=True, help="Print the plan as one object. Sizes are in bytes."),
        *placement_options(),
        *finding_options(),
    ],
)
