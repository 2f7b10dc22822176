"""From the tokenizer in GGUF metadata to the JSON of the `tokenizers` library.

Byte-pair vocabularies ("gpt2") whose word rules are known, and SentencePiece's ("llama"). Anything else is
refused by name: a tokenizer that is nearly right makes answers that are nearly right.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from gguf import TokenType
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.card import TokenizerCard
from layerline.models.end_tokens import end_ids
from layerline.models.fields import REMEDY, Fields
from layerline.models.pre_tokenizers import WORD_RULES, WordRules
from layerline.models.sentencepiece import sentencepiece_tokenizer


def tokenizer_from_gguf(metadata: Fields) -> TokenizerCard:
    """The tokenizer that `metadata` describes; ModelUnsupportedError names a kind that is not known."""
    tokens = _tokens(metadata)
    kinds = _kinds(metadata, len(tokens))
    tokenizer, adds_bos = _model(metadata, tokens, kinds)
    _add_special(tokenizer, tokens, kinds)
    bos_id = _token_id(metadata, "bos_token_id", len(tokens))
    ends = [_token_id(metadata, key, len(tokens)) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
    special = [(token, index) for index, token in enumerate(tokens) if kinds[index] == TokenType.CONTROL]
    return TokenizerCard(
        json=tokenizer.to_str(),
        add_bos=metadata.flag("tokenizer.ggml.add_bos_token", adds_bos) and bos_id is not None,
        bos_id=bos_id,
        eos_ids=end_ids(ends, special),
        chat_template=metadata.text("tokenizer.chat_template", "") or None,
        bos_token="" if bos_id is None else tokens[bos_id],
        eos_token="" if ends[0] is None else tokens[ends[0]],
    )


def _tokens(metadata: Fields) -> list[str]:
    tokens = metadata.list_of(str, "tokenizer.ggml.tokens")
    if len(set(tokens)) != len(tokens):
        raise ModelCorruptError(f"{metadata.where}: the vocabulary has a token twice.", remedy=REMEDY)
    return tokens


def _kinds(metadata: Fields, count: int) -> list[int]:
    kinds = metadata.list_of(int, "tokenizer.ggml.token_type", [int(TokenType.NORMAL)] * count)
    if len(kinds) != count:
        raise metadata.wrong("tokenizer.ggml.token_type", f"a list of {count} numbers")
    return kinds


def _token_id(metadata: Fields, key: str, count: int) -> int | None:
    key = f"tokenizer.ggml.{key}"
    if key not in metadata:
        return None
    token_id = metadata.integer(key)
    if not 0 <= token_id < count:
        raise metadata.wrong(key, f"a token of the {count} in the vocabulary")
    return token_id


def _model(metadata: Fields, tokens: list[str], kinds: list[int]) -> tuple[Tokenizer, bool]:
    """The tokenizer without its special tokens, and whether it adds a beginning unless the file says otherwise."""
    kind = metadata.text("tokenizer.ggml.model")
    if kind == "llama":
        return sentencepiece_tokenizer(metadata, tokens, kinds), True
    if kind != "gpt2":
        remedy = "It knows gpt2 and llama."
        raise ModelUnsupportedError(f"{metadata.where} has a tokenizer of the kind {kind!r}.", remedy=remedy)
    name = metadata.text("tokenizer.ggml.pre", "")
    if name not in WORD_RULES:
        message = f"{metadata.where} has a tokenizer that cuts words by the rules {name!r}."
        raise ModelUnsupportedError(message, remedy=f"Known are {', '.join(sorted(filter(None, WORD_RULES)))}.")
    return _byte_pair_tokenizer(metadata, tokens, WORD_RULES[name]), WORD_RULES[name].adds_bos


def _byte_pair_tokenizer(metadata: Fields, tokens: list[str], rules: WordRules) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = []
    for merge in metadata.list_of(str, "tokenizer.ggml.merges"):
        left, _, right = merge.partition(" ")
        if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            message = f"{metadata.where}: the merge {merge!r} does not join two tokens into a third."
            raise ModelCorruptError(message, remedy=REMEDY)
        merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rules.whole_words))
    if rules.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = rules.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _add_special(tokenizer: Tokenizer, tokens: list[str], kinds: list[int]) -> None:
    """Control tokens and the unknown one are left out of decoded text, user-defined ones are not; none is ever cut."""
    control, user_defined = [], []
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN) and token:
            control.append(AddedToken(token, normalized=False, special=True))
        elif kind == TokenType.USER_DEFINED and token:
            user_defined.append(AddedToken(token, normalized=False))
    tokenizer.add_special_tokens(control)
    tokenizer.add_tokens(user_defined)
