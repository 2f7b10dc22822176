"""`scripts/bench`: measures one node against two and prints what it found.

A case is a module with `measure(pair, effort)`; the list of them is here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from tests.bench import decode, footprint, prefill
from tests.bench.effort import FULL, QUICK
from tests.bench.figures import Figures
from tests.bench.models import MODELS, BenchModel
from tests.bench.pair import running_pair
from tests.bench.report import print_report, write_json
from tests.bench.this_machine import machine_facts
from tests.lab.permission import why_no_lab

CASES = (footprint, decode, prefill)


def chosen_models(text: str) -> list[BenchModel]:
    """The models in a list like smollm2,qwen."""
    unknown = set(text.split(",")) - set(MODELS)
    if unknown:
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: there are {', '.join(MODELS)}.")
    return [MODELS[key] for key in text.split(",")]


@click.command()
@click.option(
    "--models", "chosen", default=",".join(MODELS), show_default=True, help="The models, with commas between."
)
@click.option("--quick", is_flag=True, help="Short answers and few repetitions: to see that it works, not to quote.")
@click.option("--repeats", type=click.IntRange(1), help="How often each case is repeated.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write ratios, cases and machine to a file.")
def main(chosen: str, quick: bool, repeats: int | None, json_path: Path | None) -> None:
    """Measure one node against two on this machine, each node on a core of its own, over 1 Gbit/s.

    Needs root, network namespaces and two cores. Both clusters are kept loaded and are asked in turn; ratios are
    medians over the repetitions. Progress goes to standard error, the table to standard output.
    """
    models = chosen_models(chosen)
    if reason := why_no_lab():
        raise click.ClickException(f"{reason}.")
    effort = (QUICK if quick else FULL).with_repeats(repeats)
    found: list[Figures] = []
    for model in models:
        _say(f"{model.key}: starting one node and two nodes")
        with running_pair(model) as pair:
            for case in CASES:
                _say(f"{model.key}: {case.__name__.rpartition('.')[2]}")
                found.append(case.measure(pair, effort))
    print_report(found, Console(file=sys.stdout, width=120))
    if json_path is not None:
        write_json(found, machine_facts(), json_path)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
