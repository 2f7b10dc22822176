"""How likely tokens were, in the forms of OpenAI's two APIs."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from layerline.answer import Alternative, TokenLikelihood


def chat_logprobs(likelihoods: Sequence[TokenLikelihood]) -> dict[str, Any]:
    """As chats have them."""
    content = [{**_of(each.token), "top_logprobs": [_of(other) for other in each.likeliest]} for each in likelihoods]
    return {"content": content, "refusal": None}


def completion_logprobs(likelihoods: Sequence[TokenLikelihood | str], offset: int) -> dict[str, Any]:
    """As completions have them; the first token of a prompt, of which nothing is known, is its text alone.

    `offset` is where the text begins, in characters.
    """
    tokens: list[str] = []
    characters = codecs.getincrementaldecoder("utf-8")(errors="replace")  # which several tokens may make up
    found: list[float | None] = []
    top: list[dict[str, float] | None] = []
    offsets: list[int] = []
    for each in likelihoods:
        tokens.append(each if isinstance(each, str) else text_of(each.token))
        found.append(None if isinstance(each, str) else each.token.log_probability)
        top.append(None if isinstance(each, str) else {text_of(o): o.log_probability for o in each.likeliest})
        offsets.append(offset)
        offset += len(each if isinstance(each, str) else characters.decode(each.token.text))
    return {"tokens": tokens, "token_logprobs": found, "top_logprobs": top, "text_offset": offsets}


def text_of(alternative: Alternative) -> str:
    """A token's text; bytes that are half a character are told as such, as OpenAI does."""
    try:
        return alternative.text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in alternative.text)


def _of(alternative: Alternative) -> dict[str, Any]:
    return {
        "token": text_of(alternative),
        "logprob": alternative.log_probability,
        "bytes": list(alternative.text),
    }
