"""`scripts/bench`: measures one node against several and prints what it found. The cases are in `tests.bench.cases`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import click
from rich.console import Console

from tests.bench.cases import ALONE, CASES, NAMES, WITHOUT_LAB
from tests.bench.effort import FULL, QUICK, Effort
from tests.bench.figures import Figures
from tests.bench.models import MODELS, BenchModel
from tests.bench.pair import running_pair
from tests.bench.placement import Placement
from tests.bench.report import print_report, write_json
from tests.bench.this_machine import machine_facts
from tests.lab.permission import why_no_lab


def chosen(text: str, known: Iterable[str]) -> list[str]:
    """The names in a list like smollm2,qwen."""
    names, known = text.split(","), list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise click.BadParameter(f"{', '.join(unknown)}: there are {', '.join(known)}.")
    return names


@click.command()
@click.option(
    "--models", "models", default=",".join(MODELS), show_default=True, help="The models, with commas between."
)
@click.option("--only", default=",".join(NAMES), show_default=True, help="The cases, with commas between.")
@click.option("--quick", is_flag=True, help="Little work and few repetitions: to see that it works, not to quote.")
@click.option("--repeats", type=click.IntRange(1), help="How often each case is repeated.")
@click.option(
    "--first-layers",
    type=click.IntRange(0),
    default=0,
    help="Layers of the first of two nodes, if not as each case has it.",
)
@click.option("--instructions", default="", help="The most that oneDNN uses of the processor, as AVX512_CORE_BF16.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write ratios, cases and machine to a file.")
def main(
    models: str,
    only: str,
    quick: bool,
    repeats: int | None,
    first_layers: int,
    instructions: str,
    json_path: Path | None,
) -> None:
    """Measure one node against two on this machine, each node on a core of its own, over 1 Gbit/s.

    Needs root, network namespaces and two cores. Both clusters are kept loaded and are asked in turn; ratios are
    medians over the repetitions. Some cases have none of these: "simulated" has stages that sleep, three against one,
    and "experts" a stage in this process, so that they need no lab; "losses" takes workers, ranks, nodes and cables
    away, and measures how long answers pause.
    Progress goes to standard error, the table to standard output.
    """
    keys, names = chosen(models, MODELS), chosen(only, NAMES)
    effort = (QUICK if quick else FULL).with_repeats(repeats)
    if set(names) - WITHOUT_LAB and (reason := why_no_lab()):
        raise click.ClickException(f"{reason}.")
    placement = Placement(first_layers=first_layers, instructions=instructions)
    found = [figures for key in keys for figures in _measured(MODELS[key], names, effort, placement)]
    for name in (name for name in ALONE if name in names):
        _say(name)
        found.append(ALONE[name](effort))
    print_report(found, Console(file=sys.stdout, width=120))
    if json_path is not None:
        write_json(found, machine_facts(), json_path)


def _measured(model: BenchModel, names: list[str], effort: Effort, placement: Placement) -> list[Figures]:
    """What the cases of those names that are for `model` found; those on the same clusters follow each other."""
    cases = [case for case in CASES if case.name in names and model.key in case.models]
    found = []
    for (layouts, cut), alike in groupby(cases, key=lambda case: (case.layouts, case.cut)):
        _say(f"{model.key}: starting clusters, the cut {cut}")
        with running_pair(model, layouts, replace(placement, cut=cut)) as pair:
            for case in alike:
                _say(f"{model.key}: {case.name}")
                found.append(case.measure(pair, effort))
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
