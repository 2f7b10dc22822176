"""SentencePiece vocabularies, as byte-pair tokenizers of the `tokenizers` library.

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
    """The tokenizer of a GGUF file, without its special tokens."""
    scores = _scores(metadata)
    if len(scores) != len(tokens):
        raise metadata.wrong("tokenizer.ggml.scores", f"a list of {len(tokens)} numbers")
    adds_space = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    return pieces_tokenizer(metadata, tokens, kinds, merges_by_score(tokens, scores), adds_space=adds_space)


def pieces_tokenizer(
    metadata: Fields, tokens: list[str], kinds: list[int], merges: list[tuple[str, str]], *, adds_space: bool
) -> Tokenizer:
    """The tokenizer whose tokens are plain text, with U+2581 for a space and bytes for what is not in them.

    With `adds_space` it puts a space before each text. ModelCorruptError if there is not a token for every byte.
    """
    unknown = [token for token, kind in zip(tokens, kinds, strict=True) if kind == TokenType.UNKNOWN]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    missing = [f"<0x{byte:02X}>" for byte in range(256) if f"<0x{byte:02X}>" not in vocabulary]
    if missing:
        message = f"{metadata.where}: the vocabulary has no token for the byte {missing[0]}."
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
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), *spaces] if adds_space else spaces)
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if adds_space else steps)
    return tokenizer


def merges_by_score(tokens: list[str], scores: list[float]) -> list[tuple[str, str]]:
    """The pairs of tokens that make a third, of the highest score first."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = []
    for piece, index in vocabulary.items():
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                merges.append((-scores[index], vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(merges)]


def _scores(metadata: Fields) -> list[float]:
    """The score of each token; some files have them as whole numbers."""
    raw = metadata.raw("tokenizer.ggml.scores")
    whole = isinstance(raw, list | tuple) and raw and isinstance(raw[0], int)
    return [float(score) for score in metadata.list_of(int if whole else float, "tokenizer.ggml.scores")]
