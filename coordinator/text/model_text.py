"""All that a model in service has to do with text, and the children that do it.

One child is kept for the chats and prompts of usual length. A second one is started for each long prompt and ended
after it: those take memory that is not given back, and nobody else should wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from coordinator.concurrency import ended
from coordinator.text.answer_forms.form import AnswerForm
from coordinator.text.chat_template import ChatTemplate
from coordinator.text.frames import Message as Setup
from coordinator.text.process import OverLimitError, TextProcess
from coordinator.text.structure.grammars import Grammars
from coordinator.text.token_text import TokenText
from coordinator.text.tokenizer import TextTokenizer, too_many_tokens
from layerline.chat import Message, Tool, ToolRules
from layerline.models.card import ModelCard, TokenizerCard
from layerline.requests import Structure

TRY_DEADLINE_S = 10.0


class ModelText:
    """Prompts and chats to token ids, and the text of each token for what is generated."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        template: ChatTemplate,
        eos_ids: Sequence[int] = (),
        structures: TextProcess | None = None,
    ) -> None:
        """`structures` has a child that compiles structures first, so that none takes too much here."""
        self._structures = structures
        self._tokenizer = tokenizer
        self._template = template
        self.eos_ids = tuple(eos_ids)
        self._grammars: Grammars | None = None

    @property
    def tokens(self) -> TokenText:
        """The text of every token, once `read` is through."""
        return self._tokenizer.tokens

    @property
    def grammars(self) -> Grammars:
        """What answers with a structure are held to, once `read` is through."""
        self._grammars = self._grammars or Grammars(self.tokens, self.eos_ids, self._why_not)
        return self._grammars

    async def _why_not(self, structure: Structure) -> str:
        """Why a structure cannot be compiled; what is wrong with it in itself is told by whoever compiles it then."""
        if self._structures is None:
            return ""
        try:
            request = {"task": "try", "kind": structure.kind, "text": structure.text}
            answer = await self._structures.ask(request, deadline_s=TRY_DEADLINE_S)
        except OverLimitError as error:
            return f"it takes too much to compile ({error})"
        return str(answer["reason"]) if answer.get("error") in ("limit", "panic") else ""

    async def read(self) -> None:
        """Reads the tokenizer, before anything else; a ModelError says what is wrong with it."""
        await self._tokenizer.read()

    async def prompt_ids(self, prompt: str, *, context_tokens: int) -> tuple[int, ...]:
        """The ids of a prompt, with a BOS if the model wants one; RequestError for what cannot be."""
        return await self._tokenizer.encode(prompt, add_bos=True, most_tokens=context_tokens)

    async def chat_ids(
        self,
        messages: Sequence[Message],
        *,
        context_tokens: int,
        tools: Sequence[Tool] = (),
        variables: Mapping[str, Any] | None = None,
    ) -> tuple[int, ...]:
        """The ids of a chat: those of what the template renders and nothing more, as `apply_chat_template` gives them.

        Errors as those of `prompt_ids`, and a ModelError for the template's own.
        """
        text = await self._template.render(messages, tools=tools, variables=variables)
        return await self._tokenizer.encode(text, add_bos=False, most_tokens=context_tokens)

    def answer_form(self, rules: ToolRules | None) -> AnswerForm:
        """The form of answers to a chat with these tools; RequestError for tools that the model was not taught."""
        return AnswerForm.of(self._template.text, rules)

    def check_ids(self, ids: Sequence[int], *, context_tokens: int) -> None:
        """RequestError for ids that a client has made itself and that the model does not have or cannot hold."""
        if len(ids) > context_tokens:
            raise too_many_tokens(len(ids), context_tokens)
        self._tokenizer.check_ids(ids)


@asynccontextmanager
async def model_text(card: TokenizerCard, *, vocabulary: int) -> AsyncIterator[ModelText]:
    """The text side of a model with `vocabulary` embeddings; its children end with the block."""

    def setup() -> Setup:
        return {"json": card.json, "vocabulary": vocabulary}

    async with (
        TextProcess(setup) as process,
        TextProcess(setup, keep=False) as long_process,
        TextProcess(lambda: {"json": "", "vocabulary": 0}) as structures,
    ):
        tokenizer = TextTokenizer(card, vocabulary=vocabulary, process=process, long_process=long_process)
        yield ModelText(tokenizer, ChatTemplate(card, process), card.eos_ids, structures)


@asynccontextmanager
async def begun_text(card: ModelCard, chat_template: str) -> AsyncIterator[tuple[ModelText, asyncio.Task[None]]]:
    """The text side of a model, and its reading of the tokenizer, which must have ended before anything else.

    A `chat_template` that is not empty stands in the place of the model's own.
    """
    tokenizer = replace(card.tokenizer, chat_template=chat_template) if chat_template else card.tokenizer
    async with model_text(tokenizer, vocabulary=card.spec.vocabulary) as text:
        reading = asyncio.create_task(text.read())
        try:
            yield text, reading
        finally:
            await ended(reading)
