"""From a request to pieces of text: the answers to one prompt, as they come.

Knows the tokenizer and what an answer consists of; the pages and steps are the engine's matter.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from coordinator.answering.answer_writer import AnswerWriter
from coordinator.answering.likelihoods import prompt_likelihoods
from coordinator.answering.prompt import Prompt, read_prompt
from coordinator.answering.stopwatch import Stopwatch
from coordinator.engine import Answer, Engine
from coordinator.scheduling.events import Ended, Token
from coordinator.text.model_text import ModelText
from coordinator.text.token_text import TokenText
from layerline.answer import AnswerItem, StageSummary
from layerline.requests import GenerateRequest


async def answered(
    request: GenerateRequest, engine: Engine, text: ModelText, *, context_tokens: int, stop_ids: frozenset[int]
) -> AsyncGenerator[AnswerItem, None]:
    """The answers to a request, piece by piece; ending the iteration cancels them on every node.

    First comes what is to be told of the prompt, if anything is.
    """
    stopwatch = Stopwatch()
    with engine.counting_refusals():
        prompt = await read_prompt(request, text, context_tokens=context_tokens, stop_ids=stop_ids)
    if request.prompt_log_probabilities is not None:
        likely = prompt_likelihoods(prompt.token_ids, request.prompt_log_probabilities, engine, text.tokens)
        async with aclosing(likely):
            async for of_prompt in likely:
                yield of_prompt
    async with (
        engine.answer(prompt.sequence, forks=request.n) as answer,
        aclosing(answer_pieces(answer, prompt, text.tokens, stopwatch, engine.stages)) as pieces,
    ):
        async for piece in pieces:
            yield piece


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
        request.sequence: AnswerWriter(index, request, prompt, tokens, replace(stopwatch))
        for index, request in enumerate(answer.requests)
    }
    while writers:
        event = await answer.next_event()
        assert isinstance(event, Token | Ended), "nothing of an answer is scored"
        writer = writers.get(event.sequence)
        if writer is None:  # what was drawn after a stop string
            continue
        pieces = writer.take(event)
        if writer.reason:
            answer.finish(event.sequence)  # before a client that reads slowly is waited for
            del writers[event.sequence]
        for piece in pieces:
            yield piece
        if writer.reason:
            yield writer.finished(writer.reason, stages(), answer.losses)
