"""From a client's request to token ids, and from drawn tokens to pieces of text: one answer's whole life.

Knows the tokenizer, the template and the stop strings; the pages and steps are the engine's matter.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from coordinator.engine import Answer
from coordinator.scheduling.events import Ended
from coordinator.scheduling.sequence import SequenceRequest
from coordinator.text.chat_template import ChatTemplate
from coordinator.text.detokenizer import Detokenizer
from coordinator.text.stopping import StopStrings
from coordinator.text.tokenizer import TextTokenizer
from layerline.errors import RequestError
from layerline.frames import Sampling
from layerline.requests import Finished, GenerateRequest, Piece, StageSummary, Timings, Usage


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


async def read_prompt(
    request: GenerateRequest, tokenizer: TextTokenizer, chat: ChatTemplate, stop_ids: frozenset[int]
) -> Prompt:
    """The prompt of a request; RequestError for what cannot be rendered, tokenised or drawn with."""
    text = request.prompt
    if request.messages is not None:
        text = await chat.render(request.messages)
    if text is not None:
        token_ids = await asyncio.to_thread(tokenizer.encode, text, add_special=True)
    else:
        assert request.token_ids is not None
        token_ids = request.token_ids
        tokenizer.check_ids(token_ids)
    return Prompt(request=request, token_ids=token_ids, sampling=_sampling(request), stop_ids=stop_ids)


def _sampling(request: GenerateRequest) -> Sampling:
    try:
        return Sampling(
            temperature=request.temperature,
            top_k=request.top_k,
            top_p=request.top_p,
            min_p=request.min_p,
            repetition_penalty=request.repetition_penalty,
            seed=secrets.randbits(63) if request.seed is None else request.seed,
        )
    except ValueError as error:
        raise RequestError(f"The request is not valid: {error}.") from error


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
    tokenizer: TextTokenizer,
    stopwatch: Stopwatch,
    plan: tuple[StageSummary, ...],
) -> AsyncGenerator[Piece | Finished, None]:
    """Pieces of text as they are certain, then how it ended.

    Text that may be half a character or the beginning of a stop string is held back until it is certain; the ids
    come with the piece that they end in, an end-of-sequence id with the last one.
    """
    detokenizer = Detokenizer.after(tokenizer, prompt.token_ids)
    stops = StopStrings(prompt.request.stop)
    waiting_ids: list[int] = []
    completion_tokens = 0
    while True:
        event = await answer.next_event()
        if isinstance(event, Ended):
            text, reason = stops.push(detokenizer.flush()) + stops.flush(), event.reason
            break
        stopwatch.tick()
        completion_tokens += 1
        waiting_ids.append(event.token_id)
        text = "" if event.token_id in prompt.stop_ids else stops.push(detokenizer.push(event.token_id))
        if stops.matched is not None:
            answer.finish()
            reason = "stop"
            break
        if text:
            yield Piece(text=text, token_ids=tuple(waiting_ids))
            waiting_ids = []
    if text or waiting_ids:
        yield Piece(text=text, token_ids=tuple(waiting_ids))
    usage = Usage(prompt_tokens=len(prompt.token_ids), completion_tokens=completion_tokens)
    timings = stopwatch.timings(usage)
    yield Finished(finish_reason=reason, usage=usage, timings=timings, plan=plan, seed=prompt.sampling.seed)
