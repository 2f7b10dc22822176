"""tokenizer.model, the file of a SentencePiece vocabulary, read without the library it is of.

Source: src/sentencepiece_model.proto of https://github.com/google/sentencepiece. Kinds of pieces have the numbers that
GGUF has for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gguf import TokenType
from tokenizers import AddedToken, Tokenizer

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.fields import REMEDY, Fields
from layerline.models.json_file import read_bytes
from layerline.models.protobuf_fields import fields_of, float_of
from layerline.models.sentencepiece import Prefix, merges_by_score, pieces_tokenizer
from layerline.models.special_tokens import add_special

MAX_BYTES = 32 << 20  # one with 262,144 pieces has 4.5 MiB
MODEL_TYPES = {1: "unigram", 2: "byte-pair", 3: "word", 4: "character"}
BYTE_PAIR = 2
PIECES, TRAINER, NORMALIZER = 1, 2, 3  # fields of the file
PIECE, SCORE, KIND = 1, 2, 3  # of a piece
MODEL_TYPE, BOS_ID, EOS_ID = 3, 41, 42  # of the trainer's settings
NAME, CHARACTER_MAP, ADD_SPACE, TRIM_SPACES = 1, 2, 3, 4  # of the normaliser's
CONVERT = "Make a tokenizer.json in transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)."


@dataclass(kw_only=True, slots=True)
class Vocabulary:
    """What a tokenizer.model holds: for each piece its text, score and kind, and the settings, by their defaults."""

    pieces: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    model_type: int = 1
    bos_id: int = 1
    eos_id: int = 2
    has_character_map: bool = False
    adds_space: bool = True
    trims_spaces: bool = True

    def piece(self, index: int) -> str:
        """The text of a piece; empty for an index that says there is none."""
        return self.pieces[index] if 0 <= index < len(self.pieces) else ""


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary in the file at `path`; ModelCorruptError if it holds none, ModelUnsupportedError for its kind."""
    data = read_bytes(path, MAX_BYTES)
    try:
        found = _vocabulary(data)
    except ValueError as error:
        raise ModelCorruptError(f"{path} is not a SentencePiece model: {error}.", remedy=CONVERT) from error
    if len(set(found.pieces)) != len(found.pieces):
        raise ModelCorruptError(f"{path}: the vocabulary has a piece twice.", remedy=REMEDY)
    if found.model_type != BYTE_PAIR:
        kind = MODEL_TYPES.get(found.model_type, f"number {found.model_type}")
        raise ModelUnsupportedError(
            f"{path} has a {kind} vocabulary, and layerline reads byte-pair ones.", remedy=CONVERT
        )
    if found.has_character_map or found.trims_spaces:
        asks = "replaces characters" if found.has_character_map else "leaves out spaces"
        raise ModelUnsupportedError(f"{path} {asks} before it cuts, which layerline cannot do.", remedy=CONVERT)
    return found


def sentencepiece_tokenizer(path: Path, vocabulary: Vocabulary, settings: Fields) -> Tokenizer:
    """The tokenizer of a `vocabulary` that was read from `path`; `settings` are those of tokenizer_config.json."""
    pieces, kinds = vocabulary.pieces, vocabulary.kinds
    prefix = Prefix.NONE
    if settings.flag("add_prefix_space", vocabulary.adds_space):
        prefix = Prefix.EACH if settings.flag("legacy", True) else Prefix.FIRST
    merges = merges_by_score(pieces, vocabulary.scores)
    tokenizer = pieces_tokenizer(str(path), pieces, kinds, merges, prefix)
    _add_later(tokenizer, settings)
    added = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    left = [(piece, kind) for piece, kind in zip(pieces, kinds, strict=True) if piece not in added]
    add_special(tokenizer, [piece for piece, _ in left], [kind for _, kind in left])
    return tokenizer


def _vocabulary(data: bytes) -> Vocabulary:
    found = Vocabulary()
    for number, value in fields_of(data):
        if not isinstance(value, bytes):
            continue
        if number == PIECES:
            _add_piece(found, fields_of(value))
        elif number == TRAINER:
            numbers = {key: number for key, number in fields_of(value) if isinstance(number, int)}
            found.model_type = numbers.get(MODEL_TYPE, found.model_type)
            found.bos_id, found.eos_id = numbers.get(BOS_ID, found.bos_id), numbers.get(EOS_ID, found.eos_id)
        elif number == NORMALIZER:
            settings = dict(fields_of(value))
            found.has_character_map = bool(settings.get(CHARACTER_MAP))
            found.adds_space = bool(settings.get(ADD_SPACE, True))
            found.trims_spaces = bool(settings.get(TRIM_SPACES, True))
    if not found.pieces:
        raise ValueError("it has no pieces")
    return found


def _add_piece(found: Vocabulary, fields: Iterable[tuple[int, int | bytes]]) -> None:
    values = dict(fields)
    text, kind = values.get(PIECE), values.get(KIND, int(TokenType.NORMAL))
    if not isinstance(text, bytes) or not text or not isinstance(kind, int):
        raise ValueError("a piece without a text")
    score = float_of(values.get(SCORE, bytes(4)))
    if not math.isfinite(score):
        raise ValueError("a score that is not a number")
    found.pieces.append(text.decode())
    found.scores.append(score)
    found.kinds.append(kind)


def _add_later(tokenizer: Tokenizer, settings: Fields) -> None:
    """The tokens that tokenizer_config.json adds to the vocabulary, or says more of; each keeps its id."""
    later = settings.section("added_tokens_decoder")
    for name in sorted(later.names(), key=lambda name: (len(name), name)):
        token = later.section(name)
        content, special = token.text("content"), token.flag("special", False)
        added = AddedToken(
            content,
            special=special,
            lstrip=token.flag("lstrip", False),
            rstrip=token.flag("rstrip", False),
            single_word=token.flag("single_word", False),
            normalized=token.flag("normalized", not special),
        )
        if special:
            tokenizer.add_special_tokens([added])
        else:
            tokenizer.add_tokens([added])
        if str(tokenizer.token_to_id(content)) != name:
            message = f"{settings.where} gives the token {content!r} the id {name}, which is not the next one."
            raise ModelCorruptError(message, remedy=REMEDY)
