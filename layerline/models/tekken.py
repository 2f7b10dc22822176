"""tekken.json, the vocabulary of Mistral's models since Nemo, as a tokenizer of the `tokenizers` library.

The special tokens have the first ids; then come byte strings by their rank, of which the pair that makes the lowest
rank is joined first. Source: `Tekkenizer` of https://github.com/mistralai/mistral-common.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path

from gguf import TokenType
from tokenizers import Regex, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from layerline.errors import ModelCorruptError
from layerline.models.byte_letters import in_letters
from layerline.models.fields import REMEDY, Fields
from layerline.models.json_file import read_text, strict_object
from layerline.models.special_tokens import add_special

MAX_BYTES = 64 << 20  # one with 150,000 byte strings has 19 MiB
MOST_SPECIAL_TOKENS = 1 << 16
MAX_TOKEN_BYTES = 1 << 10
BOS, EOS = "<s>", "</s>"
# Of files up to version 7, which do not list theirs.
OLDER_SPECIAL_TOKENS = (
    *("<unk>", BOS, EOS, "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


def tekken_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in the file at `path`; ModelCorruptError if it holds none."""
    try:
        content = json.loads(read_text(path, MAX_BYTES), object_pairs_hook=strict_object)
    except (ValueError, RecursionError) as error:
        raise ModelCorruptError(f"{path} is not JSON: {error}.", remedy=REMEDY) from error
    file = Fields(content if isinstance(content, dict) else {}, str(path))
    config = file.section("config")
    special = _special_tokens(file, config.integer("default_num_special_tokens"))
    ranks = _ranks(file, config.integer("default_vocab_size") - len(special))
    tokens = [token for token, _ in special] + list(ranks)
    if len(set(tokens)) != len(tokens):
        raise ModelCorruptError(f"{path}: the vocabulary has a token twice.", remedy=REMEDY)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges_by_rank(ranks), ignore_merges=True))
    words = Split(Regex(config.text("pattern")), behavior="isolated")
    tokenizer.pre_tokenizer = Sequence([words, ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    add_special(tokenizer, [token for token, _ in special], [kind for _, kind in special])
    return tokenizer


def merges_by_rank(ranks: Mapping[str, int]) -> list[tuple[str, str]]:
    """The pairs of tokens that make a third, of the lowest rank first, and of those with the longest left one."""
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        pairs = ((token[:cut], token[cut:]) for cut in range(len(token) - 1, 0, -1))
        merges += [(left, right) for left, right in pairs if left in ranks and right in ranks]
    return merges


def _special_tokens(file: Fields, count: int) -> list[tuple[str, int]]:
    """(text, kind) of the `count` special tokens; those that the file does not name are called after their ids."""
    control, user_defined = int(TokenType.CONTROL), int(TokenType.USER_DEFINED)
    named = [(token, control) for token in OLDER_SPECIAL_TOKENS]
    if "special_tokens" in file:
        listed = [Fields(token, f"{file.where}, special_tokens") for token in file.list_of(dict, "special_tokens")]
        named = [
            (token.text("token_str"), control if token.flag("is_control", True) else user_defined) for token in listed
        ]
        if [token.integer("rank") for token in listed] != list(range(len(listed))):
            raise file.wrong("special_tokens", "a list in the order of ranks")
    if not len(named) <= count <= MOST_SPECIAL_TOKENS:
        raise file.wrong("config", f"one with room for {len(named)} special tokens, and at most {MOST_SPECIAL_TOKENS}")
    return named + [(f"<SPECIAL_{index}>", control) for index in range(len(named), count)]


def _ranks(file: Fields, count: int) -> dict[str, int]:
    """The first `count` byte strings, in letters, in the order of their ranks."""
    listed = file.list_of(dict, "vocab")
    if not 256 <= count <= len(listed):
        raise file.wrong("config", f"one of a vocabulary that {len(listed)} byte strings fill")
    ranks: dict[str, int] = {}
    for rank, entry in enumerate(listed[:count]):
        token = Fields(entry, f"{file.where}, vocab")
        try:
            data = base64.b64decode(token.text("token_bytes"), validate=True)
        except binascii.Error as error:
            raise token.wrong("token_bytes", "base64") from error
        if (
            token.integer("rank") != rank
            or not 0 < len(data) <= MAX_TOKEN_BYTES
            or (rank < 256 and data != bytes([rank]))
        ):
            raise token.wrong("rank", "the next one, and the first ones the single bytes")
        ranks[in_letters(data)] = rank
    return ranks
