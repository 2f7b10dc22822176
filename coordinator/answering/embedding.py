"""From texts to vectors: the mean of the last hidden states of their tokens, or that of the last one.

Knows the tokenizer and the vectors; which texts are under way is `coordinator.answering.reading`'s matter.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import numpy as np
from numpy.typing import NDArray

from coordinator.answering.reading import Told, read_texts, texts_at_once
from coordinator.engine import Engine
from coordinator.scheduling.events import Summed
from coordinator.scheduling.sequence import SequenceRequest, SummedRows
from coordinator.text.model_text import ModelText
from layerline.embedding import Embedding, EmbeddingFinished, EmbedInput, EmbedRequest
from layerline.errors import RequestError


async def embedded(
    request: EmbedRequest, engine: Engine, text: ModelText, *, context_tokens: int
) -> AsyncGenerator[Embedding | EmbeddingFinished, None]:
    """The vector of each input, in order, and what all took; ending the iteration cancels what is under way."""
    began_s = time.monotonic()
    with engine.counting_refusals():
        inputs = [await _ids(each, text, context_tokens) for each in request.inputs]
    summed: SummedRows = "all" if request.pooling == "mean" else "last"
    requests = [functools.partial(SequenceRequest.summing, token_ids=ids, summed=summed) for ids in inputs]
    async with aclosing(read_texts(engine, requests, texts_at_once(max(map(len, inputs))))) as readings:
        index = 0
        async for told in readings:
            yield Embedding(index=index, numbers=_vector(told, request), tokens=len(inputs[index]))
            index += 1
    tokens = sum(map(len, inputs))
    yield EmbeddingFinished(tokens=tokens, took_s=time.monotonic() - began_s, plan=engine.stages())


async def _ids(given: EmbedInput, text: ModelText, context_tokens: int) -> tuple[int, ...]:
    """The token ids of an input; RequestError or PromptTooLongError for what cannot be read."""
    if given.text is not None:
        return await text.prompt_ids(given.text, context_tokens=context_tokens)
    assert given.token_ids is not None
    text.check_ids(given.token_ids, context_tokens=context_tokens)
    return given.token_ids


def _vector(told: Sequence[Told], request: EmbedRequest) -> tuple[float, ...]:
    """The mean of the rows of all sums; RequestError if fewer numbers are there than are wanted."""
    sums = [event for event in told if isinstance(event, Summed)]
    parts = [np.frombuffer(each.total.data, np.float32) for each in sums]
    total: NDArray[np.float64] = np.add.reduce(parts, dtype=np.float64)
    if request.dimensions > len(total):
        raise RequestError(f"dimensions is {request.dimensions}, and vectors of this model have {len(total)} numbers.")
    vector = total[: request.dimensions or None] / sum(each.rows for each in sums)
    if request.normalised:
        vector = vector / max(float(np.linalg.norm(vector)), np.finfo(np.float64).tiny)
    return tuple(vector.astype(np.float32).tolist())
