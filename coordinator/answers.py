"""From a client's request to token ids, and from drawn tokens to pieces of text: the whole life of its answers.

Knows the tokenizer, the template and the stop strings; the pages and steps are the engine's matter.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace

from coordinator.engine import Answer
from coordinator.scheduling.events import Ended, EndReason, Token
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.detokenizer import Detokenizer
from coordinator.text.model_text import ModelText
from coordinator.text.stop_strings import StopStrings
from coordinator.text.token_text import TokenText
from layerline.frames import Sampling
from layerline.requests import AnswerItem, Finished, GenerateRequest, Piece, StageSummary, Timings, Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A request as the engine takes it: token ids, the sampling with its seed, and what ends it."""

    request: GenerateRequest
    token_ids: tuple[int, ...]
    sampling: Sampling
    stop_ids: frozenset[int]

    def sequence(self, number: int) -> SequenceRequest:
        """The request under the engine's number."""
        return SequenceRequest(
            sequence=number,
            token_ids=self.token_ids,
            max_tokens=self.request.max_tokens,
            sampling=self.sampling,
            stop_ids=self.stop_ids,
        )


async def prompt_ids(request: GenerateRequest, text: ModelText, *, context_tokens: int) -> tuple[int, ...]:
    """The ids of a request's prompt; RequestError for what cannot be rendered or tokenised."""
    if request.messages is not None:
        return await text.chat_ids(request.messages, context_tokens=context_tokens)
    if request.prompt is not None:
        return await text.prompt_ids(request.prompt, context_tokens=context_tokens)
    assert request.token_ids is not None
    text.check_ids(request.token_ids, context_tokens=context_tokens)
    return request.token_ids


async def read_prompt(
    request: GenerateRequest, text: ModelText, *, context_tokens: int, stop_ids: frozenset[int]
) -> Prompt:
    """The prompt of a request; RequestError for what cannot be rendered, tokenised or drawn with."""
    token_ids = await prompt_ids(request, text, context_tokens=context_tokens)
    seed = secrets.randbits(63) if request.seed is None else request.seed
    sampling = Sampling.of(request.sampling, seed=seed)
    return Prompt(request=request, token_ids=token_ids, sampling=sampling, stop_ids=stop_ids)


@dataclass(kw_only=True, slots=True)
class Stopwatch:
    """When a request came and when its tokens did, in seconds of a monotonic clock."""

    began_s: float = field(default_factory=time.monotonic)
    first_token_s: float = 0.0
    last_token_s: float = 0.0

    def tick(self) -> None:
        """A token came."""
        self.last_token_s = time.monotonic()
        self.first_token_s = self.first_token_s or self.last_token_s

    def timings(self, usage: Usage) -> Timings:
        """The rates; the first token belongs to the prompt, the others to the answer."""
        decode_s = self.last_token_s - self.first_token_s
        ttft_s = max(0.0, self.first_token_s - self.began_s)
        return Timings(
            ttft_s=ttft_s,
            prefill_tokens_per_s=usage.prompt_tokens / ttft_s if ttft_s else 0.0,
            decode_tokens_per_s=(usage.completion_tokens - 1) / decode_s if decode_s else 0.0,
        )


async def answer_pieces(
    answer: Answer,
    prompt: Prompt,
    tokens: TokenText,
    stopwatch: Stopwatch,
    stages: Callable[[], tuple[StageSummary, ...]],
) -> AsyncGenerator[AnswerItem, None]:
    """Pieces of text as they are certain and, for each answer to the prompt, how it ended.

    `stages` are those of the pipeline that there is when it ends.
    """
    writers = {
        request.sequence: _Writer(index, request, prompt, tokens, replace(stopwatch))
        for index, request in enumerate(answer.requests)
    }
    while writers:
        event = await answer.next_event()
        assert isinstance(event, Token | Ended), "nothing of an answer is scored"
        writer = writers.get(event.sequence)
        if writer is None:  # what was drawn after a stop string
            continue
        piece = writer.take(event)
        if writer.reason:
            answer.finish(event.sequence)  # before a client that reads slowly is waited for
            del writers[event.sequence]
        if piece:
            yield piece
        if writer.reason:
            yield writer.finished(writer.reason, stages(), answer.losses)


class _Writer:
    """One answer as it is written: the scheduler's events in, pieces out. `reason` is set once it has ended.

    Text that may be half a character or the beginning of a stop string is held back until it is certain; the ids
    come with the piece that they end in, an end-of-sequence id with the last one.
    """

    def __init__(
        self, index: int, request: SequenceRequest, prompt: Prompt, tokens: TokenText, stopwatch: Stopwatch
    ) -> None:
        self.reason: EndReason | None = None
        self._index = index
        self._request = request
        self._detokenizer = Detokenizer.after(tokens, prompt.token_ids)
        self._stops = StopStrings(prompt.request.stop)
        self._stopwatch = stopwatch
        self._waiting_ids: list[int] = []
        self._completion_tokens = 0

    def take(self, event: Token | Ended) -> Piece | None:
        """The text that has become certain with `event`, None if none has."""
        if isinstance(event, Ended):
            self.reason = event.reason
            text = self._stops.flush()
        else:
            text = self._text_of(event.token_id)
            if self._stops.matched is not None:
                self.reason = "stop"
        if not text and not (self.reason and self._waiting_ids):
            return None
        token_ids, self._waiting_ids = tuple(self._waiting_ids), []
        return Piece(text=text, token_ids=token_ids, index=self._index)

    def _text_of(self, token_id: int) -> str:
        self._stopwatch.tick()
        self._completion_tokens += 1
        self._waiting_ids.append(token_id)
        if token_id in self._request.stop_ids:
            return ""
        return self._stops.push(self._detokenizer.push(token_id))

    def finished(self, reason: EndReason, stages: tuple[StageSummary, ...], losses: int) -> Finished:
        """How the answer ended."""
        prompt_tokens = 0 if self._index else len(self._request.token_ids)
        usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=self._completion_tokens)
        return Finished(
            finish_reason=reason,
            usage=usage,
            timings=self._stopwatch.timings(usage),
            plan=stages,
            seed=self._request.sampling.seed,
            index=self._index,
            losses=losses,
        )
