"""Whole masks of tokens: from a bitmap the smallest form, and from any form the tokens that may not be drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from layerline.token_mask import LONGEST_GAP, TokenMask

Ids = NDArray[np.int64]


def smallest_mask(bitmap: bytes, tokens: int) -> TokenMask:
    """The mask of the first `tokens` tokens of a bitmap, as few bytes as it can be; ValueError if none is allowed."""
    packed = np.frombuffer(bitmap, np.uint8)[: -(-tokens // 8)].copy()
    if tokens % 8:
        packed[-1] &= (1 << tokens % 8) - 1
    allowed = int.from_bytes(packed.tobytes(), "little").bit_count()
    listed_tokens = min(allowed, tokens - allowed)
    if listed_tokens == 0 or 2 * listed_tokens >= len(packed):
        return TokenMask(form="bitmap", data=packed.tobytes())
    few = allowed == listed_tokens
    ids = np.flatnonzero(np.unpackbits(packed if few else ~packed, count=tokens, bitorder="little"))
    return TokenMask(form="allowed" if few else "forbidden", data=many_listed(ids))


def many_listed(ids: Ids) -> bytes:
    """Ascending ids as a mask lists them."""
    whole, rest = np.divmod(np.diff(ids, prepend=-1), LONGEST_GAP)
    gaps = np.full(len(ids) + int(whole.sum()), LONGEST_GAP, "<u2")
    gaps[np.cumsum(whole + 1) - 1] = rest
    return gaps.tobytes()


def listed_ids(mask: TokenMask) -> Ids:
    """The ids that a mask lists."""
    gaps = np.frombuffer(mask.data, "<u2").astype(np.int64)
    places: Ids = np.cumsum(gaps)[gaps != LONGEST_GAP] - 1
    return places


def ids_end(mask: TokenMask) -> int:
    """The end of the ids that a mask lists or, of a bitmap, allows."""
    if mask.form == "bitmap":
        return int.from_bytes(mask.data, "little").bit_length()
    return int(np.frombuffer(mask.data, "<u2").sum(dtype=np.int64))


def allowed_tokens(mask: TokenMask, tokens: int) -> NDArray[np.bool_]:
    """Of each of `tokens` tokens whether it may be drawn."""
    if mask.form == "bitmap":
        bits = np.unpackbits(np.frombuffer(mask.data, np.uint8), count=tokens, bitorder="little")
        return bits.view(np.bool_)
    allowed = np.full(tokens, mask.form == "forbidden")
    allowed[listed_ids(mask)] = mask.form == "allowed"
    return allowed


def with_token(mask: TokenMask, token_id: int, tokens: int) -> TokenMask:
    """The mask that allows one token more."""
    allowed = allowed_tokens(mask, tokens).copy()
    allowed[token_id] = True
    return smallest_mask(np.packbits(allowed, bitorder="little").tobytes(), tokens)
