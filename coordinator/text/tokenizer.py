"""The tokenizer of a model: text to token ids and back. Knows neither chats nor streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tokenizers

from layerline.errors import ModelCorruptError, RequestError
from layerline.models.card import TokenizerCard


class TextTokenizer:
    """A tokenizer and the rules of its model: whether a prompt begins with BOS, which ids the model knows.

    `special_ids` are the ids of control tokens, which are never shown. Encoding releases the GIL and may be done in
    another thread.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, *, bos_id: int | None, vocabulary: int, special_ids: frozenset[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._bos_id = bos_id
        self._vocabulary = vocabulary
        self.special_ids = special_ids

    @classmethod
    def from_card(cls, card: TokenizerCard, *, vocabulary: int) -> TextTokenizer:
        """The tokenizer that `card` describes, of a model with `vocabulary` embeddings.

        ModelCorruptError if the card's JSON is not a tokenizer. A large one takes about a second.
        """
        try:
            tokenizer = tokenizers.Tokenizer.from_str(card.json)
        except Exception as error:  # the library raises nothing narrower
            raise ModelCorruptError(
                f"The model's tokenizer cannot be read: {error}.", remedy="Fetch the model again."
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        special_ids = frozenset(id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special)
        bos_id = card.bos_id if card.add_bos else None
        return cls(tokenizer, bos_id=bos_id, vocabulary=vocabulary, special_ids=special_ids)

    def encode(self, text: str, add_special: bool) -> tuple[int, ...]:
        """The ids of `text`; control tokens written out in it, as a chat template does, become their ids.

        With `add_special` a model that wants a BOS gets exactly one, be it in the text already or not.
        RequestError for text whose ids the model does not have.
        """
        ids = tuple(self._tokenizer.encode(_well_formed(text), add_special_tokens=False).ids)
        self.check_ids(ids)
        if add_special and self._bos_id is not None and ids[:1] != (self._bos_id,):
            return (self._bos_id, *ids)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, without control tokens; incomplete characters become U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def check_ids(self, ids: Iterable[int]) -> None:
        """RequestError that names the first of `ids` that the model does not have."""
        for index, id_ in enumerate(ids):
            if not 0 <= id_ < self._vocabulary:
                raise RequestError(
                    f"Token id {id_} at position {index} does not exist: "
                    f"the model's ids are 0 to {self._vocabulary - 1}.",
                    remedy="Use the ids of this model's own tokenizer.",
                )


def _well_formed(text: str) -> str:
    """`text` with lone surrogates, which have no UTF-8, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
