"""SentencePiece vocabularies of GGUF files, as byte-pair tokenizers of the `tokenizers` library.

SentencePiece joins the two neighbouring pieces that make the piece of the highest score; a list of merges in
the order of those scores does the same. Source: `LlamaConverter` of the transformers library.
"""

from __future__ import annotations

from gguf import TokenType
from tokenizers import Tokenizer, decoders, models, normalizers

from layerline.errors import ModelCorruptError
from layerline.models.fields import REMEDY, Fields

_SPACE = "\u2581"


def sentencepiece_tokenizer(metadata: Fields, tokens: list[str], kinds: list[int]) -> Tokenizer:
    """The tokenizer without its special tokens."""
    scores = metadata.list_of(float, "tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise metadata.wrong("tokenizer.ggml.scores", f"a list of {len(tokens)} numbers")
    unknown = [token for token, kind in zip(tokens, kinds, strict=True) if kind == TokenType.UNKNOWN]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in vocabulary]
    if missing:
        message = f"{metadata.where}: the vocabulary has no token for the byte {missing[0]}."
        raise ModelCorruptError(message, remedy=REMEDY)
    model = models.BPE(
        vocab=vocabulary,
        merges=_merges(vocabulary, scores),
        unk_token=unknown[0] if unknown else None,
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(model)
    adds_space = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    spaces = [normalizers.Replace(" ", _SPACE)]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), *spaces] if adds_space else spaces)
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if adds_space else steps)
    return tokenizer


def _merges(vocabulary: dict[str, int], scores: list[float]) -> list[tuple[str, str]]:
    merges = []
    for piece, index in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[index], vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]
