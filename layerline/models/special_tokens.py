"""The tokens of a vocabulary that are never cut, by what the file says each token is."""

from __future__ import annotations

from collections.abc import Sequence

from gguf import TokenType
from tokenizers import AddedToken, Tokenizer


def add_special(
    tokenizer: Tokenizer, tokens: Sequence[str], kinds: Sequence[int], *, take_spaces: bool = False, plain: str = ""
) -> None:
    """Control tokens and the unknown one are left out of decoded text, user-defined ones are not; none is ever cut.

    With `take_spaces` they take the spaces after them, but for those among the words of `plain`.
    """
    control, user_defined = [], []
    for token, kind in zip(tokens, kinds, strict=True):
        rstrip = take_spaces and token not in plain.split()
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            control.append(AddedToken(token, normalized=False, special=True, rstrip=rstrip))
        elif kind == TokenType.USER_DEFINED:
            user_defined.append(AddedToken(token, normalized=False, rstrip=rstrip))
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(user_defined)
