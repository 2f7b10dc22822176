"""`layerline prompt`: makes the model ready, streams one answer, tells how fast it was."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, replace

from layerline.answer import Finished, Piece
from layerline.async_client import AsyncClient, AsyncStream
from layerline.calls import completion
from layerline.chat import Message
from layerline.cli.load_screen import LoadScreen
from layerline.cli.options import Finding
from layerline.cli.output import AnswerWriter, standard_error
from layerline.cli.render.json_objects import completion_object
from layerline.cli.render.sentences import likelihood_lines, speed_line
from layerline.cli.session import open_session
from layerline.errors import UsageError
from layerline.plan_request import PlanRequest
from layerline.request_options import plan_options
from layerline.requests import GenerateOptions

FROM_STANDARD_INPUT = "-"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What is asked, and how the answer is to come."""

    text: str
    system: str | None
    raw: bool
    json: bool
    options: GenerateOptions

    def __post_init__(self) -> None:
        if self.raw and self.system is not None:
            raise UsageError("--raw and --system exclude each other.", remedy="Put the instructions into TEXT.")
        if self.raw and self.options.get("template_variables"):
            raise UsageError("--raw and --no-thinking exclude each other.", remedy="Only chat templates know thinking.")


def run_prompt(prompt: Prompt, finding: Finding, request: PlanRequest) -> None:
    """Answers `prompt`; raises LayerlineError."""
    if prompt.text == FROM_STANDARD_INPUT:
        prompt = replace(prompt, text=sys.stdin.read())
    asyncio.run(_answer(prompt, finding, request))


async def _answer(prompt: Prompt, finding: Finding, request: PlanRequest) -> None:
    async with (
        open_session(finding, request.model) as session,
        ask(session.client, prompt) as stream,  # first, so that a wrong option is told before loading
    ):
        await prepare(session.client, replace(request, model=session.model), quiet=prompt.json)
        if prompt.json:
            pieces = [piece async for piece in stream]
            print(json.dumps(completion_object(completion(pieces, stream))))
        else:
            writer = AnswerWriter()
            await writer.write_stream(stream)
            assert stream.finished is not None
            for line in likelihood_lines(writer.likelihoods):
                standard_error().print(line)
            standard_error().print(speed_line(stream.finished), style="dim")


async def prepare(client: AsyncClient, request: PlanRequest, *, quiet: bool = False) -> None:
    """Has the model loaded, with what happens shown on standard error unless `quiet`."""
    events = client.prepare(request.model, **plan_options(request))
    with LoadScreen(standard_error(), quiet=quiet) as screen:
        async with events:
            async for event in events:
                screen.show(event)


def ask(client: AsyncClient, prompt: Prompt) -> AsyncStream[Piece, Finished]:
    """The answer to `prompt`."""
    if prompt.raw:
        return client.generate(prompt.text, stream=True, **prompt.options)
    system = [Message(role="system", content=prompt.system)] if prompt.system is not None else []
    return client.chat([*system, Message(role="user", content=prompt.text)], stream=True, **prompt.options)
