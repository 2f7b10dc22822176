"""`scripts/bench-peers`: measures layerline beside llama.cpp. The cases are in `tests.bench.peers.cases`."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from tests.bench.__main__ import chosen
from tests.bench.effort import FULL, QUICK
from tests.bench.models import MODELS
from tests.bench.peers.build import built_llama_cpp
from tests.bench.peers.cases import NAMES
from tests.bench.peers.processor import processor
from tests.bench.peers.report import write_json
from tests.bench.peers.run import Run
from tests.bench.report import print_report
from tests.lab.commands import LabError
from tests.lab.permission import why_no_lab

EFFORT = replace(FULL, repeats=5, long_repeats=3)


@click.command()
@click.option(
    "--models", "models", default=",".join(MODELS), show_default=True, help="The models, with commas between."
)
@click.option("--only", default=",".join(NAMES), show_default=True, help="The cases, with commas between.")
@click.option("--quick", is_flag=True, help="Little work and few repetitions: to see that it works, not to quote.")
@click.option("--repeats", type=click.IntRange(1), help="How often each case is repeated.")
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write processor, ratios and figures to a file."
)
def main(models: str, only: str, quick: bool, repeats: int | None, json_path: Path | None) -> None:
    """Measure layerline beside llama.cpp on this machine, in turn and on the same cores.

    Needs root, network namespaces and two cores; to build llama.cpp, once, also cmake, a compiler and PyPI. Ratios are
    layerline's over llama.cpp's, medians over the repetitions. Progress goes to standard error, the table to standard
    output. A case that fails is named, the others go on, and the exit code is 1.
    """
    keys, names = chosen(models, MODELS), chosen(only, NAMES)
    if reason := why_no_lab():
        raise click.ClickException(f"{reason}.")
    try:
        run = Run(built_llama_cpp(), (QUICK if quick else EFFORT).with_repeats(repeats))
    except LabError as error:
        raise click.ClickException(f"{error}.") from error
    for key in keys:
        run.measure(MODELS[key], names)
    print_report(run.found, Console(file=sys.stdout, width=120))
    if json_path is not None:
        write_json(run.found, processor(), json_path)
    if run.failed:
        raise click.ClickException(f"{', '.join(run.failed)} could not be measured.")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    main()
