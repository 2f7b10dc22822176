"""The `layerline` command: its root, and the entry point of the process. Loads nothing it does not need."""

from __future__ import annotations

import io
import os
import sys
from typing import NoReturn

import click

from layerline.cli.command import Program, verbose_option
from layerline.cli.exit_codes import INTERRUPTED, TERMINATED, exit_code_lines
from layerline.cli.termination import Termination
from layerline.version import WIRE_VERSION, __version__

HELP = """Run one large language model on the machines you already have.

Start `layerline node` on every machine. Then `layerline prompt` on any of them finds the nodes, gives each the
layers that it can hold, and answers. `layerline coordinator` keeps a model loaded for programs and for the other
commands."""

SUMMARIES = {
    "node": "Offer this machine to coordinators on the network.",
    "prompt": "Answer one prompt.",
    "chat": "Hold a conversation in the terminal.",
    "nodes": "List every node found.",
    "plan": "Show which node would hold which layers, and why.",
    "perplexity": "Measure how well a model foretells a text.",
    "stats": "Show how the work goes, and what holds it up.",
    "coordinator": "Keep a model loaded and serve it.",
}


def _version_option() -> click.Option:
    def show(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            click.echo(f"layerline {__version__} (wire version {WIRE_VERSION})")
            context.exit()

    return click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=show, help="Show the versions."
    )


program = Program(
    "layerline",
    summaries=SUMMARIES,
    help=HELP,
    epilog=f"Exit codes:\n{exit_code_lines()}",
    params=[_version_option(), verbose_option()],
)


def main() -> NoReturn:
    """The entry point."""
    _open_missing_streams()
    termination = Termination()
    termination.install()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character must not end an answer
            stream.reconfigure(errors="replace")
    code = program.run(sys.argv[1:])
    sys.exit(TERMINATED if termination.came and code == INTERRUPTED else code)


def _open_missing_streams() -> None:
    """Puts the null device where a standard stream was closed, so that no socket or file takes its number."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free is this one
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


if __name__ == "__main__":
    main()
