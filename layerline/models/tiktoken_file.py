"""tiktoken.model, the vocabulary of Kimi K2, as a tokenizer of the `tokenizers` library.

A line has a byte string in base64 and its rank, which is its id; the pair that makes the lowest rank is joined first.
Behind them are 256 special tokens, of which tokenizer_config.json names some. How text is cut into words the file does
not say, so that the model's family has to be known.

Source: `tokenization_kimi.py` of Kimi K2, and https://github.com/openai/tiktoken.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from gguf import TokenType
from tokenizers import Tokenizer, decoders, models

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.byte_letters import in_letters
from layerline.models.fields import REMEDY, Fields
from layerline.models.json_file import read_text
from layerline.models.pre_tokenizers import WORD_RULES
from layerline.models.special_tokens import add_special
from layerline.models.tekken import MAX_BYTES, MAX_TOKEN_BYTES, merges_by_rank

WORDS = {"kimi_k2": "kimi-k2", "kimi_k25": "kimi-k2"}  # by `model_type`: the name of the rules in GGUF
SPECIAL_TOKENS = 256


def tiktoken_tokenizer(path: Path, model_type: str, settings: Fields) -> Tokenizer:
    """The tokenizer in the file at `path`, its special tokens as `settings` (tokenizer_config.json) names them.

    ModelUnsupportedError for a family whose words are not known, ModelCorruptError if the file holds no vocabulary.
    """
    if model_type not in WORDS:
        message = f"{path} does not say how a model of the family {model_type!r} cuts text into words."
        raise ModelUnsupportedError(message, remedy=f"layerline knows that of {', '.join(WORDS)}; use a GGUF file.")
    ranks = _ranks(path)
    special = _special_tokens(settings, len(ranks))
    if not ranks.keys().isdisjoint(special):
        raise ModelCorruptError(f"{settings.where} adds a token that {path} has.", remedy=REMEDY)
    vocabulary = ranks | {token: len(ranks) + index for index, token in enumerate(special)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges_by_rank(ranks), ignore_merges=True))
    tokenizer.pre_tokenizer = WORD_RULES[WORDS[model_type]].pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    add_special(tokenizer, special, [int(TokenType.CONTROL)] * len(special))
    return tokenizer


def _ranks(path: Path) -> dict[str, int]:
    """The byte strings, in letters, by rank."""
    ranks: dict[str, int] = {}
    for number, line in enumerate(read_text(path, MAX_BYTES).splitlines()):
        text, _, rank = line.partition(" ")
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _malformed(path, number, "is not base64") from error
        if rank != str(number) or not 0 < len(data) <= MAX_TOKEN_BYTES or in_letters(data) in ranks:
            raise _malformed(path, number, "is not the next byte string")
        ranks[in_letters(data)] = number
    if not {in_letters(bytes([byte])) for byte in range(256)} <= ranks.keys():
        raise ModelCorruptError(f"{path} lacks some single bytes.", remedy=REMEDY)
    return ranks


def _special_tokens(settings: Fields, first_id: int) -> list[str]:
    """The texts of the ids from `first_id` on; those that nobody names are called after their ids."""
    named = settings.section("added_tokens_decoder")
    texts = [
        named.section(str(token_id)).text("content") if named.has(str(token_id)) else f"<|reserved_token_{token_id}|>"
        for token_id in range(first_id, first_id + SPECIAL_TOKENS)
    ]
    if len(set(texts)) < len(texts):
        raise settings.wrong("added_tokens_decoder", "one that has no text twice")
    return texts


def _malformed(path: Path, number: int, what: str) -> ModelCorruptError:
    return ModelCorruptError(f"{path}: line {number + 1} {what}.", remedy=REMEDY)
