"""Text as it is generated, token by token.

Decoding each token by itself is wrong twice: a character may be spread over several tokens, and many tokenizers
decode a token by its neighbours (a leading space is dropped at the beginning of a text). So a window of tokens
is decoded again with every new token, and what was not shown yet is shown. This is the method of Hugging Face's
text-generation-inference (`decode_token` with its prefix and read offsets), which vLLM took over
(`detokenize_incrementally`); here the window is bounded also for a model that never completes a character.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.text.tokenizer import TextTokenizer

REPLACEMENT = "\ufffd"  # what decoding makes of bytes that are no character, or not yet
LONGEST_INCOMPLETE = 3  # bytes, and so tokens, that an unfinished UTF-8 character can have
CONTEXT_TOKENS = 6  # enough for a neighbour or two on either side of an unfinished character
MOST_WINDOW_TOKENS = 32


class Detokenizer:
    """The text of one answer. `push` each token, `flush` at the end; the pieces joined are the text.

    A piece never ends in half a character and what was shown is never taken back. Control tokens have no text.
    Each push decodes at most `MOST_WINDOW_TOKENS` tokens, twice.
    """

    def __init__(self, tokenizer: TextTokenizer, window: list[int], shown: int) -> None:
        self._tokenizer = tokenizer
        self._window = window
        self._shown = shown  # characters of the window's text that have been shown
        self._clean = len(window)  # tokens of the window up to the last place where a character ended

    @classmethod
    def after(cls, tokenizer: TextTokenizer, prompt_ids: Sequence[int]) -> Detokenizer:
        """The detokenizer of an answer to `prompt_ids`.

        The answer goes on where the prompt ended, in mid-word or mid-character; such a character is shown whole.
        """
        visible = [id_ for id_ in prompt_ids[-4 * CONTEXT_TOKENS :] if id_ not in tokenizer.special_ids]
        starts = range(CONTEXT_TOKENS, CONTEXT_TOKENS + LONGEST_INCOMPLETE + 1)
        windows = [visible[-tokens:] for tokens in starts]
        texts = [tokenizer.decode(window) for window in windows]
        whole = (index for index, text in enumerate(texts) if not text.startswith(REPLACEMENT))
        index = next(whole, 0)
        return cls(tokenizer, windows[index], len(texts[index].rstrip(REPLACEMENT)))

    def push(self, token_id: int) -> str:
        """The text that is certain now that `token_id` has come; often "" or several characters."""
        if token_id in self._tokenizer.special_ids:
            return ""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window)
        certain = len(text) - self._uncertain(text)
        piece = text[self._shown : certain]
        self._shown = max(self._shown, certain)
        if certain == len(text):
            self._drop(self._clean, unshown=0)
            self._clean = len(self._window)
        elif len(self._window) > MOST_WINDOW_TOKENS:
            self._drop(len(self._window) // 2, unshown=len(text) - self._shown)
            self._clean = 0
        return piece

    def flush(self) -> str:
        """What was held back, but for the bytes of a character that never became whole."""
        text = self._tokenizer.decode(self._window).rstrip(REPLACEMENT)
        piece = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return piece

    def _uncertain(self, text: str) -> int:
        """Characters at the end of the text that the next token may change.

        Up to `LONGEST_INCOMPLETE` tokens since the last whole character may yet be one; of more, only the last can.
        """
        replaced = len(text) - len(text.rstrip(REPLACEMENT))
        pending_tokens = len(self._window) - self._clean
        return replaced if pending_tokens <= LONGEST_INCOMPLETE else min(replaced, LONGEST_INCOMPLETE)

    def _drop(self, tokens: int, *, unshown: int) -> None:
        """Forgets the first `tokens` of the window; the last `unshown` characters of the rest are still to be shown."""
        del self._window[:tokens]
        self._shown = len(self._tokenizer.decode(self._window)) - unshown
