"""`layerline perplexity`: makes the model ready, has a text scored, tells how well the model foretells it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from layerline.async_client import AsyncStream
from layerline.cli.options import Finding
from layerline.cli.output import print_lines, standard_error
from layerline.cli.prompt import prepare
from layerline.cli.render.json_objects import perplexity_object
from layerline.cli.render.sentences import perplexity_line
from layerline.cli.session import open_session
from layerline.errors import UsageError
from layerline.perplexity import Perplexity
from layerline.plan_request import PlanRequest
from layerline.scoring import MAX_TEXT_BYTES, WINDOW_TOKENS, ScoringFinished, WindowScores
from layerline.units import format_bytes


def run_perplexity(path: Path, finding: Finding, request: PlanRequest, *, as_json: bool) -> None:
    """Tells the perplexity of a model on the text at `path`; raises LayerlineError."""
    text, window_tokens = read_text(path), request.context_tokens or WINDOW_TOKENS
    perplexity, finished = asyncio.run(_measured(text, window_tokens, finding, request, quiet=as_json))
    if as_json:
        print(json.dumps(perplexity_object(perplexity, finished, window_tokens)))
    else:
        print_lines((perplexity_line(perplexity, finished, window_tokens),))


def read_text(path: Path) -> str:
    """The text at `path`, to the last letter; UsageError for what cannot be scored."""
    with path.open("rb") as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    if not data:
        raise UsageError(f"{path} is empty.", remedy="Give a file with a text.")
    if len(data) > MAX_TEXT_BYTES:
        message = f"{path} has over {format_bytes(MAX_TEXT_BYTES)}, the most that is scored at once."
        raise UsageError(message, remedy="Cut it, and measure the parts.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        remedy = "Convert it, as with iconv."
        raise UsageError(f"{path} is not a text in UTF-8: see its byte {error.start}.", remedy=remedy) from None


async def _measured(
    text: str, window_tokens: int, finding: Finding, request: PlanRequest, *, quiet: bool
) -> tuple[Perplexity, ScoringFinished]:
    async with (
        open_session(finding, request.model) as session,
        session.client.score(text, window_tokens=window_tokens) as windows,
    ):
        await prepare(session.client, replace(request, model=session.model), quiet=quiet)
        perplexity = await _added_up(windows, quiet=quiet)
        assert windows.finished is not None
        return perplexity, windows.finished


async def _added_up(windows: AsyncStream[WindowScores, ScoringFinished], *, quiet: bool) -> Perplexity:
    """The perplexity over all windows, with a bar on a terminal on the way."""
    perplexity, console = Perplexity(), standard_error()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        bar = progress.add_task("scores the text", total=None)
        async for window in windows:
            perplexity.add(window.log_probabilities)
            done = window.start + len(window.token_ids)
            progress.update(
                bar, completed=done, total=window.text_tokens, description=f"perplexity {perplexity.value:.4f}"
            )
    return perplexity
