"""The tokenizer of a model, worked in text children: prompts to token ids. Knows neither chats nor streams."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from coordinator.text.chat_template import well_formed
from coordinator.text.frames import Message
from coordinator.text.process import OverLimitError, TextProcess
from coordinator.text.token_text import COUNT, TokenText
from layerline.errors import ModelCorruptError, ModelUnsupportedError, PromptTooLongError, RequestError
from layerline.models.card import TokenizerCard
from layerline.units import format_bytes

LONG_BYTES = 128 << 10  # a longer prompt takes over about 0.05 s, and a child of its own
LOAD_DEADLINE_S = 60.0
ENCODE_DEADLINE_S = 10.0
ENCODE_DEADLINE_S_PER_BYTE = 4e-6
FETCH_ANEW = "Fetch the model again."
SHORTER = "Shorten the prompt, or ask for a longer context (--context), if the model knows one."


class TextTokenizer:
    """A tokenizer and the rules of its model: whether a prompt begins with BOS, which of the ids there are.

    Short prompts take turns in `process`, long ones in `long_process`, so that those do not hold up these.
    """

    def __init__(
        self, card: TokenizerCard, *, vocabulary: int, process: TextProcess, long_process: TextProcess
    ) -> None:
        self._bos_id = card.bos_id if card.add_bos else None
        self._vocabulary = vocabulary
        self._process = process
        self._long_process = long_process
        self._tokens: TokenText | None = None

    @property
    def tokens(self) -> TokenText:
        """The text of every token, once `read` is through."""
        assert self._tokens is not None
        return self._tokens

    async def read(self) -> None:
        """Reads the tokenizer, which takes about a second for a large one.

        ModelCorruptError if it is none, or exceeds what reading one may take; ModelUnsupportedError for its decoder.
        """
        try:
            answer = await self._process.ask({"task": "tokens"}, deadline_s=LOAD_DEADLINE_S)
        except OverLimitError as error:
            raise _unreadable(str(error)) from error
        if "error" in answer:
            raise _read_error(answer["error"], str(answer.get("reason")))
        try:
            self._tokens = TokenText.from_message(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(f"its child answers {error}") from error

    async def encode(self, text: str, *, add_bos: bool, most_tokens: int) -> tuple[int, ...]:
        """The ids of `text`; control tokens written out in it, as a chat template does, become their ids.

        With `add_bos` a model that wants a BOS gets exactly one, be it in the text already or not. PromptTooLongError
        for over `most_tokens`, RequestError for text whose ids the model does not have or that takes too long.
        """
        text = well_formed(text)
        nbytes = len(text) if text.isascii() else len(text.encode())
        longest_bytes = self.tokens.longest_bytes
        if longest_bytes and nbytes > most_tokens * longest_bytes:
            raise PromptTooLongError(
                f"The prompt has {format_bytes(nbytes)}; the context holds {most_tokens} tokens, prompt and answer, of "
                f"at most {longest_bytes} bytes each.",
                remedy=SHORTER,
            )
        ids = await self._ids(text, nbytes, most_tokens)
        self.check_ids(ids)
        if add_bos and self._bos_id is not None and ids[:1] != (self._bos_id,):
            return (self._bos_id, *ids)
        return ids

    async def _ids(self, text: str, nbytes: int, most_tokens: int) -> tuple[int, ...]:
        process = self._process if nbytes <= LONG_BYTES else self._long_process
        request: Message = {"task": "encode", "text": text, "most_tokens": most_tokens}
        try:
            answer = await process.ask(request, deadline_s=ENCODE_DEADLINE_S + nbytes * ENCODE_DEADLINE_S_PER_BYTE)
        except OverLimitError as error:
            raise _unencodable(nbytes, str(error)) from error
        match answer:
            case {"ids": bytes(data)} if len(data) % array(COUNT).itemsize == 0:
                return tuple(array(COUNT, data))
            case {"count": int(count)}:
                raise too_many_tokens(count, most_tokens)
            case _:
                raise _unencodable(nbytes, f"the tokenizers library fails: {answer.get('reason')}")

    def check_ids(self, ids: Iterable[int]) -> None:
        """RequestError that names the first of `ids` that the model does not have."""
        for index, id_ in enumerate(ids):
            if not 0 <= id_ < self._vocabulary:
                raise RequestError(
                    f"Token id {id_} at position {index} does not exist: "
                    f"the model's ids are 0 to {self._vocabulary - 1}.",
                    remedy="Use the ids of this model's own tokenizer.",
                )


def too_many_tokens(count: int, context_tokens: int) -> PromptTooLongError:
    """The error for a prompt that the context cannot hold."""
    return PromptTooLongError(
        f"The prompt has {count} tokens; the context holds {context_tokens}, prompt and answer.", remedy=SHORTER
    )


def _read_error(kind: str, reason: str) -> ModelCorruptError | ModelUnsupportedError:
    if kind == "UnknownDecoderError":
        return ModelUnsupportedError(
            f"The model's tokenizer has a decoder that layerline does not know: {reason}.",
            remedy="It knows ByteLevel, Metaspace, and SentencePiece's Replace, ByteFallback, Fuse and Strip.",
        )
    return _unreadable(reason)


def _unreadable(reason: str) -> ModelCorruptError:
    return ModelCorruptError(f"The model's tokenizer cannot be read: {reason.rstrip('.')}.", remedy=FETCH_ANEW)


def _unencodable(nbytes: int, reason: str) -> RequestError:
    return RequestError(
        f"The prompt of {format_bytes(nbytes)} cannot be tokenised: {reason.rstrip('.')}.",
        remedy="Try a shorter or another one; if others fail as well, fetch the model again.",
    )
