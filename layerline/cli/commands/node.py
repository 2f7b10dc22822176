"""The surface of `layerline node`. What each value may be is for `node.daemon.settings`, as in a config file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from layerline.cli.command import Command

HELP = """Offer this machine's devices to coordinators on the network, until told to end.

The node advertises itself by mDNS, measures its devices, and waits. A coordinator gives it layers of a model that is
in its models folder; it reads only those. It keeps them for --keep-alive after the coordinator has left. Ctrl-C or
SIGTERM ends it within 5 seconds.

Every option may also be set in a TOML file (--config), as in memory = "8GiB", or as LAYERLINE_NODE_MEMORY in the
environment. Flags win over the environment, and that over the file."""

EPILOG = """
Examples:
  layerline node
  layerline node --models ~/models --memory 12GiB
  layerline node --name laptop --device cpu:4 --port 7400 --no-mdns
"""


def _run(config: Path | None, **flags: Any) -> None:
    from node.daemon.daemon import run_node  # noqa: PLC0415 - help must not load the daemon
    from node.daemon.settings import resolve_settings  # noqa: PLC0415

    click.get_current_context().exit(run_node(resolve_settings(flags, os.environ, config)))


node = Command(
    "node",
    daemon=True,
    callback=_run,
    help=HELP,
    epilog=EPILOG,
    params=[
        click.Option(["--name"], metavar="NAME", help="What people and --layers call it. [default: the host's name]"),
        click.Option(["--host"], metavar="HOST", help="The one address to listen on. [default: every interface]"),
        click.Option(
            ["--port"],
            metavar="PORT",
            help="The TCP port of its control service; 0 for any that is free. [default: 7355, or the next free one]",
        ),
        click.Option(
            ["--device"],
            metavar="DEVICE",
            help="What computes: auto, cpu, cpu:N for N threads, mps, or a list: cuda:0,cuda:1, or cuda:0,cpu so that "
            "experts may lie on the CPU, or cpu:2,cpu:2 for parts of the CPU. [default: auto, which is every "
            "accelerator, or else the CPU]",
        ),
        click.Option(
            ["--memory"],
            metavar="SIZE",
            help="What models may take here, as in 8GiB or 512MiB. [default: most of what is free]",
        ),
        click.Option(
            ["--threads"],
            metavar="N",
            help="Threads that compute on the CPU. [default: the cores this process may use]",
        ),
        click.Option(
            ["--models"],
            metavar="DIR",
            help="The folder with GGUF files and model folders. [default: models/ in the user's cache of layerline]",
        ),
        click.Option(
            ["--keep-alive"],
            metavar="TIME",
            help="How long a loaded model is kept after its coordinator has left, as in 300s, 5m or 1h. [default: 5m]",
        ),
        click.Option(
            ["--no-mdns", "mdns"],
            flag_value=False,
            default=None,
            help="Do not advertise; coordinators need --node HOST:PORT then.",
        ),
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A TOML file with the same options.",
        ),
    ],
)
