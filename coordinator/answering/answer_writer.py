"""One answer as it is written: the scheduler's events in, pieces out.

Text that may be half a character, half a marker or the beginning of a stop string is held back until it is certain. The
ids come with the piece that they end in, an end-of-sequence id with the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from coordinator.answering.likelihoods import likelihood_of
from coordinator.answering.prompt import Prompt
from coordinator.answering.stopwatch import Stopwatch
from coordinator.scheduling.events import Ended, EndReason, Token
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.answer_forms.reader import AnswerReader, Part
from coordinator.text.detokenizer import Detokenizer
from coordinator.text.stop_strings import StopStrings
from coordinator.text.token_text import TokenText
from layerline.answer import Finished, Piece, StageSummary, TokenLikelihood, Usage


class Parts(Protocol):
    """What cuts an answer's text into its parts."""

    @property
    def thinking(self) -> bool: ...
    @property
    def has_called(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    def push(self, text: str) -> list[Part]: ...
    def flush(self) -> list[Part]: ...


class PlainText:
    """An answer that is text and nothing else, as one to raw text is."""

    thinking = has_called = is_over = False

    def push(self, text: str) -> list[Part]:
        """It, as text."""
        return [Part(kind="text", text=text)] if text else []

    def flush(self) -> list[Part]:
        """Nothing: all was told."""
        return []


class AnswerWriter:
    """Answer number `index` to a prompt. `reason` is set once it has ended."""

    def __init__(
        self, index: int, request: SequenceRequest, prompt: Prompt, tokens: TokenText, stopwatch: Stopwatch
    ) -> None:
        self.reason: EndReason | None = None
        self._index = index
        self._request = request
        form, rules = prompt.form, prompt.request.tools
        markers = tokens.markers(form.markers) if form else {}
        self._detokenizer = Detokenizer.after(tokens, prompt.token_ids, markers)
        self._parts: Parts = AnswerReader(form, rules, thinks=prompt.thinks) if form else PlainText()
        self._stops = StopStrings(prompt.request.stop)
        self._stopwatch = stopwatch
        self._waiting_ids: list[int] = []
        self._waiting_likelihoods: list[TokenLikelihood] = []
        self._tokens = tokens
        self._completion_tokens = self._thinking_tokens = self._cached_tokens = 0

    def take(self, event: Token | Ended) -> list[Piece]:
        """The pieces that have become certain with `event`."""
        if isinstance(event, Ended):
            self.reason = event.reason
            parts = self._stopped(self._parts.flush())
            if self._stops.matched is None and (rest := self._stops.flush()):
                parts.append(Part(kind="text", text=rest))
        else:
            parts = self._stopped(self._parts.push(self._text_of(event.token_id)))
            self._cached_tokens += event.cached_tokens
            if event.log_probabilities and event.token_id not in self._request.stop_ids:
                ids = (event.token_id, *event.likeliest_ids)
                self._waiting_likelihoods.append(likelihood_of(self._tokens, ids, event.log_probabilities))
            if self._stops.matched is not None or self._parts.is_over:
                self.reason = "stop"
        pieces = [
            Piece(text=part.text, token_ids=(), index=self._index, kind=part.kind, tool_call=part.tool_call)
            for part in parts
        ]
        if not pieces and self.reason and self._waiting_ids:
            pieces = [Piece(text="", token_ids=(), index=self._index)]
        if pieces:
            token_ids, self._waiting_ids = tuple(self._waiting_ids), []
            likelihoods, self._waiting_likelihoods = tuple(self._waiting_likelihoods), []
            pieces[-1] = replace(pieces[-1], token_ids=token_ids, likelihoods=likelihoods)
        return pieces

    def finished(self, reason: EndReason, stages: tuple[StageSummary, ...], losses: int) -> Finished:
        """How the answer ended."""
        usage = Usage(
            prompt_tokens=0 if self._index else len(self._request.token_ids),
            completion_tokens=self._completion_tokens,
            cached_tokens=0 if self._index else self._cached_tokens,
            thinking_tokens=self._thinking_tokens,
        )
        return Finished(
            finish_reason="tool_calls" if reason == "stop" and self._parts.has_called else reason,
            usage=usage,
            timings=self._stopwatch.timings(usage),
            plan=stages,
            seed=self._request.sampling.seed,
            index=self._index,
            losses=losses,
            stopped_by=self._stops.matched or "",
        )

    def _text_of(self, token_id: int) -> str:
        self._stopwatch.tick()
        self._completion_tokens += 1
        self._thinking_tokens += self._parts.thinking
        self._waiting_ids.append(token_id)
        return "" if token_id in self._request.stop_ids else self._detokenizer.push(token_id)

    def _stopped(self, parts: Sequence[Part]) -> list[Part]:
        """The parts up to a stop string, which is looked for in what is said, not in what is thought or called."""
        passed: list[Part] = []
        for part in parts:
            if part.kind != "text":
                passed.append(part)
            elif text := self._stops.push(part.text):
                passed.append(replace(part, text=text))
        return passed
