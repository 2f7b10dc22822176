"""From drawn tokens to pieces of text: the answers to one prompt, as they come.

Knows the tokenizer and what an answer consists of; the pages and steps are the engine's matter.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from coordinator.answer_writer import AnswerWriter
from coordinator.engine import Answer
from coordinator.prompt import Prompt
from coordinator.scheduling.events import Ended, Token
from coordinator.stopwatch import Stopwatch
from coordinator.text.token_text import TokenText
from layerline.requests import AnswerItem, StageSummary


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
