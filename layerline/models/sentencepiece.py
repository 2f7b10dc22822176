"""SentencePiece vocabularies, as byte-pair tokenizers of the `tokenizers` library.

SentencePiece joins the two neighbouring pieces that make the piece of the highest score; a list of merges in
the order of those scores does the same. Source: `LlamaConverter` of the transformers library.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from gguf import TokenType
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from layerline.errors import ModelCorruptError
from layerline.models.fields import REMEDY

_SPACE = "\u2581"


class Prefix(Enum):
    """Where a space is put before text: nowhere, before each part between control tokens, or only at the beginning."""

    NONE = "none"
    EACH = "each"
    FIRST = "first"


def pieces_tokenizer(
    where: str, tokens: Sequence[str], kinds: Sequence[int], merges: list[tuple[str, str]], prefix: Prefix
) -> Tokenizer:
    """The tokenizer whose tokens are plain text, with U+2581 for a space and bytes for what is not in them.

    It is without its special tokens. ModelCorruptError, of the file `where`, if there is not a token for every byte.
    """
    unknown = [token for token, kind in zip(tokens, kinds, strict=True) if kind == TokenType.UNKNOWN]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in vocabulary]
    if missing:
        message = f"{where}: the vocabulary has no token for the byte {missing[0]}."
        raise ModelCorruptError(message, remedy=REMEDY)
    model = models.BPE(
        vocab=vocabulary,
        merges=merges,
        unk_token=unknown[0] if unknown else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Replace(" ", _SPACE)]
    if prefix is Prefix.FIRST:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme="first", split=False)
    else:
        each = [normalizers.Prepend(_SPACE)] if prefix is Prefix.EACH else []
        tokenizer.normalizer = normalizers.Sequence([*each, *spaces])
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    stripped = [] if prefix is Prefix.NONE else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence([*steps, *stripped])
    return tokenizer


LONGEST_MADE = 1024


def merges_by_score(tokens: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """The pairs of tokens that make a third, of the highest score first, and of those with the longest left one.

    SentencePiece takes the leftmost of the pairs that make a piece; in a run of spaces that is the one whose left part
    has grown longest. Pieces of over LONGEST_MADE letters, as no real vocabulary has, are made by no merge.
    """
    vocabulary = frozenset(tokens)
    merges = []
    for piece, score in zip(tokens, scores, strict=True):
        if len(piece) > LONGEST_MADE:
            continue
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-score, -len(left), -len(right), left, right))
    merges.sort(key=lambda merge: merge[:3])
    return [(left, right) for *_, left, right in merges]
