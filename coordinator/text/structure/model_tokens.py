"""What llguidance is told of a model's tokens."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.text.token_text import TokenText


class ModelTokens:
    """A model's tokens without its way to cut text, which is a program of the model's file and stays in its child.

    `cut` is what cuts text instead.
    """

    bos_token_id = None

    def __init__(self, tokens: TokenText, eos_id: int) -> None:
        self.cut: Callable[[str], list[int]] = lambda _: []
        self.eos_token_id = eos_id
        self.special_token_ids = list(tokens.control)
        self.tokens = [tokens.of(id_) or tokens.control.get(id_, "").encode() for id_ in range(len(tokens.ends))]

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a text."""
        return self.cut(text if isinstance(text, str) else text.decode(errors="ignore"))
