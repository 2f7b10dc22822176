"""Text as it is generated, token by token.

A character may be spread over several tokens; its bytes are held back until it is whole. What a token's bytes are is
known beforehand (`coordinator.text.token_text`), so that a token costs the same whatever the tokenizer is.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence

from coordinator.text.token_text import TokenText

LONGEST_INCOMPLETE = 3  # bytes that an unfinished UTF-8 character can have
MOST_TOKENS_BACK = 64  # of a prompt, to find how it ends


class Detokenizer:
    """The text of one answer: the pieces that `push` gives, joined.

    A piece never ends in half a character and what was shown is never taken back. Control tokens have no text. Bytes
    that are no character become U+FFFD; those of a character that is never finished are not shown.
    """

    def __init__(
        self, tokens: TokenText, *, begun: bytes, drops_spaces: int, markers: Mapping[int, bytes] | None = None
    ) -> None:
        self._tokens = tokens
        self._markers = markers or {}
        self._drops_spaces = drops_spaces
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters.decode(begun)

    @classmethod
    def after(
        cls, tokens: TokenText, prompt_ids: Sequence[int], markers: Mapping[int, bytes] | None = None
    ) -> Detokenizer:
        """The detokenizer of an answer to `prompt_ids`; `markers` are control tokens that are to be seen.

        The answer goes on where the prompt ended, in mid-word or mid-character; such a character is shown whole.
        """
        end = b""
        for token_id in reversed(prompt_ids[-MOST_TOKENS_BACK:]):
            end = tokens.of(token_id) + end
            if len(end) >= LONGEST_INCOMPLETE:
                break
        characters = codecs.getincrementaldecoder("utf-8")("replace")
        characters.decode(end)
        begun, _ = characters.getstate()
        return cls(tokens, begun=begun, drops_spaces=0 if end else tokens.drops_spaces, markers=markers)

    def push(self, token_id: int) -> str:
        """The text that is certain now that `token_id` has come; often "" or several characters."""
        data = self._markers.get(token_id) or self._tokens.of(token_id)
        while self._drops_spaces and data:
            if data[:1] != b" ":
                self._drops_spaces = 0
            else:
                self._drops_spaces -= 1
                data = data[1:]
        return self._characters.decode(data)
