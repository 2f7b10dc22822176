"""A vocabulary of all bytes and some words, and structures that are compiled for a vocabulary."""

from __future__ import annotations

import asyncio
from array import array

from coordinator.text.structure.grammars import GrammarConstraint, Grammars
from coordinator.text.token_text import COUNT, TokenText
from layerline.requests import Structure

WORDS = (
    '{"',
    '": ',
    '", "',
    '"}',
    '": "',
    "}]",
    "true",
    "false",
    "null",
    "name",
    "12",
    "the",
    " ",
    "\u00e9",
    "ab",
    "one",
)
EOS = 256 + len(WORDS)


def token_text() -> TokenText:
    """All bytes, some words, a token that ends answers, and some without a text."""
    texts = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in WORDS), b"", b"", b""]
    ends, end = array(COUNT), 0
    for text in texts:
        end += len(text)
        ends.append(end)
    return TokenText(joined=b"".join(texts), ends=ends, drops_spaces=0, longest_bytes=8, control={EOS: "<end>"})


TOKENS = token_text()


def made(grammars: Grammars, structure: Structure) -> GrammarConstraint:
    return asyncio.run(grammars.constraint(structure))
