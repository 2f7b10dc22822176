"""`layerline chat`: reads lines, streams answers, keeps the conversation. Works through pipes too."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace

from layerline.async_client import AsyncClient
from layerline.cli.conversation import HELP, Conversation, command_of, unknown_command_sentence
from layerline.cli.loop_thread import LoopThread, loop_thread
from layerline.cli.options import Finding
from layerline.cli.output import AnswerWriter, standard_error
from layerline.cli.prompt import prepare
from layerline.cli.render.sentences import likelihood_lines
from layerline.cli.session import open_session
from layerline.errors import OverloadedError, RequestError
from layerline.plan_request import PlanRequest
from layerline.requests import GenerateOptions

ASKING = ">>> "
GREETING = "Ctrl-D or /bye ends the chat, /help tells more."


def run_chat(system: str | None, options: GenerateOptions, finding: Finding, request: PlanRequest) -> None:
    """Holds a conversation until its end; raises LayerlineError."""
    with loop_thread() as loop, loop.entered(open_session(finding, request.model)) as session:
        loop.run(prepare(session.client, replace(request, model=session.model)))
        _Chat(loop, session.client, options, system).hold()


class _Chat:
    """A conversation between whoever types and the model."""

    def __init__(self, loop: LoopThread, client: AsyncClient, options: GenerateOptions, system: str | None) -> None:
        self._loop = loop
        self._client = client
        self._options = options
        self._begun = Conversation.begun(system)
        self._said = self._begun
        self._on_terminal = sys.stdin.isatty() and sys.stdout.isatty()

    def hold(self) -> None:
        if self._on_terminal:
            self._tell(GREETING)
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401, PLC0415 - gives `input` line editing, where there is one
        while (line := self._next_line()) is not None:
            command = command_of(line)
            if command == "/bye":
                return
            if command:
                self._obey(command)
            elif line.strip():
                self._answer(line)

    def _next_line(self) -> str | None:
        if not self._on_terminal:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        while True:
            try:
                return input(ASKING)
            except EOFError:
                AnswerWriter().write("\n")
                return None
            except KeyboardInterrupt:
                self._tell(f"\n{GREETING}")

    def _obey(self, command: str) -> None:
        if command == "/clear":
            self._said = self._begun
        else:
            self._tell(HELP if command == "/help" else unknown_command_sentence(command))

    def _answer(self, line: str) -> None:
        asked, writer = self._said.with_turn("user", line), AnswerWriter()
        try:
            self._loop.run(self._stream(asked, writer))
        except KeyboardInterrupt:
            if not self._on_terminal:
                raise
            self._tell("(stopped)")
        except (RequestError, OverloadedError) as error:
            if not self._on_terminal:
                raise
            self._tell(f"{error} /clear forgets the conversation.")
        if writer.text:
            self._said = asked.with_turn("assistant", writer.text)

    async def _stream(self, asked: Conversation, writer: AnswerWriter) -> None:
        async with self._client.chat(asked.turns, stream=True, **self._options) as stream:
            await writer.write_stream(stream)
        for text in likelihood_lines(writer.likelihoods):
            self._tell(text)

    def _tell(self, text: str) -> None:
        standard_error().print(text, style="dim")
