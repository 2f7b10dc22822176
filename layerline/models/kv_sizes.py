"""How many bytes keys and values take, and how many pages of them a sequence needs."""

from __future__ import annotations

import math

from layerline.models.spec import AttentionSpec
from layerline.plan import DTYPE_BYTES


def position_bytes(attention: AttentionSpec, kv_dtype: str) -> int:
    """Bytes of the keys and values that are made of a position.

    In int8 every group of numbers has a scale of two bytes beside it.
    """
    if attention.source is not None:
        return 0
    numbers = attention.key_numbers + attention.value_numbers
    if kv_dtype != "int8":
        return numbers * DTYPE_BYTES[kv_dtype]
    keys = attention.key_numbers // int8_group(attention.head_dim)
    values = attention.value_numbers // int8_group(attention.value_dim)
    return numbers + 2 * (keys + values)


def int8_group(head_dim: int) -> int:
    """How many neighbouring numbers of a key or value share a scale in int8: 32, or what divides the head."""
    return math.gcd(head_dim, 32)


def most_sequence_pages(reach_tokens: int, context_tokens: int, max_rows: int, page_tokens: int) -> int:
    """Pages that a sequence of `context_tokens` needs at a time, in steps of at most `max_rows` of its rows.

    If every layer has a window, of `reach_tokens` (0: none), they are those that the rows of a step are in, and those
    before that the first of these pages looks back to.
    """
    pages = -(-context_tokens // page_tokens)
    if not reach_tokens:
        return pages
    return min(pages, reach_pages(reach_tokens, page_tokens) + 1 + -(-(max_rows - 1) // page_tokens))


def reach_pages(reach_tokens: int, page_tokens: int) -> int:
    """Pages that the first row of a page looks back to with a window of `reach_tokens`, at least 1."""
    return max(1, -(-(reach_tokens - 1) // page_tokens))
