"""`layerline nodes`, `plan` and `stats`: what is there, what would be done with it, and how that goes."""

from __future__ import annotations

import asyncio
import json

from layerline.async_client import AsyncClient
from layerline.cli.options import Finding
from layerline.cli.output import print_lines, print_table, standard_error
from layerline.cli.render.json_objects import nodes_object, plan_object, stats_object
from layerline.cli.render.sentences import no_nodes_sentence, plan_lines
from layerline.cli.render.stats_screen import stats_screen
from layerline.cli.render.tables import nodes_table, plan_table
from layerline.cli.session import open_session
from layerline.errors import NoNodesError
from layerline.plan_request import PlanRequest
from layerline.printable import printable
from layerline.reports import NodesReport, PlanReport, waiting_sentence
from layerline.request_options import plan_options
from layerline.stats_report import StatsReport


def run_nodes(finding: Finding, *, as_json: bool) -> None:
    """Lists every node; NoNodesError if there is none."""
    report = asyncio.run(_nodes(finding))
    if as_json:
        print(json.dumps(nodes_object(report)))
    elif report.nodes:
        print_table(nodes_table(report))
    if not report.nodes:
        remedy = "Start one with `layerline node` on each machine, or name one with --node HOST:PORT."
        raise NoNodesError(no_nodes_sentence(report), remedy=remedy)


def run_plan(finding: Finding, request: PlanRequest, *, as_json: bool) -> None:
    """Shows the plan for a model."""
    plan = asyncio.run(_plan(finding, request))
    if as_json:
        print(json.dumps(plan_object(plan)))
        return
    print_lines((plan_lines(plan)[0], ""))
    print_table(plan_table(plan))
    print_lines(("", *plan.notes) if plan.notes else ())


def run_stats(coordinator: str | None, *, since_start: bool, as_json: bool) -> None:
    """Shows how the work goes; NoCoordinatorError if nobody works, as none is started for this."""
    report = asyncio.run(_stats(coordinator))
    if as_json:
        print(json.dumps(stats_object(report)))
        return
    for part in stats_screen(report, since_start=since_start):
        if isinstance(part, str):
            print_lines((part,))
        else:
            print_table(part)


def tell_starting(report: NodesReport) -> None:
    """Says on standard error whom a plan waits for, as it may take a minute."""
    starting = [node.name for node in report.nodes if node.facts and node.facts.state == "starting"]
    if starting:
        standard_error().print(printable(waiting_sentence(starting)), style="dim")


async def _stats(coordinator: str | None) -> StatsReport:
    async with AsyncClient(coordinator) as client:
        return await client.stats()


async def _nodes(finding: Finding) -> NodesReport:
    async with open_session(finding) as session:
        return await session.client.nodes()


async def _plan(finding: Finding, request: PlanRequest) -> PlanReport:
    async with open_session(finding, request.model) as session:
        tell_starting(await session.client.nodes())
        return await session.client.plan(session.model, **plan_options(request))
