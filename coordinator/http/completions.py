"""POST /v1/completions: raw text, or token ids, continued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from coordinator.concurrency import all_of
from coordinator.coordinator import Coordinator
from coordinator.http.bodies import read_body, refusal, refused_by_nouns
from coordinator.http.chat import head_of
from coordinator.http.chat_body import ResponseFormat, structure_of
from coordinator.http.event_stream import EventStream, begun, event, unless_left
from coordinator.http.failures import HttpError
from coordinator.http.likelihoods import completion_logprobs
from coordinator.http.merged import merged
from coordinator.http.openai_stream import openai_stream
from coordinator.http.reply import Replies, Reply, usage_of
from coordinator.http.sampling_body import CompletionFields
from layerline.answer import AnswerItem, Finished, PromptLikelihoods
from layerline.requests import GenerateRequest

IGNORED = frozenset({"user"})
"""Fields of OpenAI's API that mean nothing to a local model."""

MAX_PROMPTS = 128
MAX_CHOICES = 256
PROMPTS_AT_ONCE = 32
DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionBody(CompletionFields):
    """All that a completion may ask for."""

    prompt: str | list[str] | list[int] | list[list[int]]
    echo: bool | None = None
    logprobs: int | None = None
    suffix: str | None = None
    best_of: int | None = None
    response_format: ResponseFormat | None = None

    def requests(self) -> list[GenerateRequest]:
        """One for each prompt; HttpError for what cannot be."""
        if self.suffix:
            raise refusal("suffix", "layerline cannot fill in before a suffix.")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise refusal("best_of", "layerline gives all n answers and chooses none; best_of must be n.")
        if self.max_tokens == 0 and not self.echo:
            raise HttpError(400, "max_tokens 0 is for echo alone.", param="max_tokens")
        if self.echo and self.stream:
            raise refusal("echo", "layerline does not stream an echo.")
        prompts = self._prompts()
        if any(each.get("token_ids") == () for each in prompts):
            raise HttpError(400, "prompt has no token.", param="prompt")
        if not 0 < len(prompts) <= MAX_PROMPTS or len(prompts) * (self.n or 1) > MAX_CHOICES:
            message = f"prompt must be from 1 to {MAX_PROMPTS} prompts, with at most {MAX_CHOICES} answers in all."
            raise HttpError(400, message, param="prompt")
        most = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        with refused_by_nouns(
            {"log_probabilities": "logprobs", "prompt_log_probabilities": "logprobs", "token_ids": "prompt"}
        ):
            return [
                GenerateRequest(
                    **self.asked(),
                    **prompt,
                    max_tokens=most or 1,
                    log_probabilities=self.logprobs,
                    prompt_log_probabilities=self.logprobs if self.echo else None,
                    structure=structure_of(self.response_format),
                )
                for prompt in prompts
            ]

    def _prompts(self) -> list[dict[str, Any]]:
        if isinstance(self.prompt, str):
            return [{"prompt": self.prompt}]
        if self.prompt and isinstance(self.prompt[0], int):
            return [{"token_ids": tuple(self.prompt)}]
        return [{"prompt": each} if isinstance(each, str) else {"token_ids": tuple(each)} for each in self.prompt]  # type: ignore[arg-type]


def completion_routes(coordinator: Coordinator) -> list[BaseRoute]:
    """POST /v1/completions."""

    async def complete(request: Request) -> Response | ASGIApp:
        body = await read_body(request, CompletionBody, IGNORED)
        asked = body.requests()

        def head() -> dict[str, Any]:
            return head_of("cmpl", "text_completion", coordinator.facts().model)

        if body.stream:
            turns = asyncio.Semaphore(PROMPTS_AT_ONCE)
            streams = [_in_turn(turns, coordinator.generate(each)) for each in asked]
            items = await unless_left(request, begun(merged(streams)))
            return EventStream(openai_stream(_chunks(items, body, head())))
        turns = asyncio.Semaphore(PROMPTS_AT_ONCE)
        answers = (Replies.of(_in_turn(turns, coordinator.generate(each))) for each in asked)
        found = await unless_left(request, all_of(answers))
        echoes = [await _echo(coordinator, each) if body.echo else "" for each in asked]
        return JSONResponse(_whole(found, echoes, body, head()))

    return [Route("/v1/completions", complete, methods=["POST"])]


async def _in_turn(
    turns: asyncio.Semaphore, items: AsyncGenerator[AnswerItem, None]
) -> AsyncGenerator[AnswerItem, None]:
    """The items of an answer that is asked for once others of the same request have ended."""
    async with turns, aclosing(items):
        async for item in items:
            yield item


async def _echo(coordinator: Coordinator, asked: GenerateRequest) -> str:
    return await coordinator.text_of(asked) if asked.prompt is None else asked.prompt


def _whole(found: list[Replies], echoes: list[str], body: CompletionBody, head: dict[str, Any]) -> dict[str, Any]:
    answers = body.n or 1
    choices = [
        _choice(number * answers + reply.index, reply, echo, body)
        for number, (replies, echo) in enumerate(zip(found, echoes, strict=True))
        for reply in replies.replies
    ]
    usage = usage_of([each for replies in found for each in replies.finished])
    if body.max_tokens == 0:  # the token that had to be drawn is not told
        usage |= {"completion_tokens": 0, "total_tokens": usage["prompt_tokens"]}
    return {**head, "choices": choices, "usage": usage}


def _choice(index: int, reply: Reply, echo: str, body: CompletionBody) -> dict[str, Any]:
    text = "" if body.max_tokens == 0 else reply.text
    likely = None
    if body.logprobs is not None:
        of_answer = [] if body.max_tokens == 0 else reply.likelihoods
        likely = completion_logprobs([*reply.of_prompt, *of_answer], 0)
    return {"index": index, "text": echo + text, "logprobs": likely, "finish_reason": reply.finish_reason}


async def _chunks(
    items: AsyncGenerator[tuple[int, AnswerItem], None], body: CompletionBody, head: dict[str, Any]
) -> AsyncGenerator[bytes, None]:
    usage: dict[str, Any] = {"usage": None} if body.tells_usage else {}
    finished: list[Finished] = []
    offsets: dict[int, int] = {}
    async with aclosing(items):
        async for number, item in items:
            if isinstance(item, PromptLikelihoods):
                continue
            index = number * (body.n or 1) + item.index
            choice: dict[str, Any] = {"index": index, "text": "", "logprobs": None, "finish_reason": None}
            if isinstance(item, Finished):
                finished.append(item)
                choice["finish_reason"] = item.finish_reason
            else:
                choice["text"] = item.text
                if item.likelihoods:
                    choice["logprobs"] = completion_logprobs(item.likelihoods, offsets.get(index, 0))
                offsets[index] = offsets.get(index, 0) + len(item.text)
            yield event({**head, "choices": [choice], **usage})
    if body.tells_usage:
        yield event({**head, "choices": [], "usage": usage_of(finished)})
