"""From the tokenizer in GGUF metadata to the JSON of the `tokenizers` library.

Byte-pair vocabularies ("gpt2", "gemma4") whose word rules are known, and SentencePiece's ("llama"). Anything else is
refused by name: a tokenizer that is nearly right makes answers that are nearly right.

Key names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from gguf import TokenType
from tokenizers import Tokenizer, decoders, models, normalizers

from layerline.checks import shown
from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.card import TokenizerCard
from layerline.models.end_tokens import UNMISTAKABLE_ENDS, end_ids
from layerline.models.fields import REMEDY, Fields
from layerline.models.pre_tokenizers import GEMMA4, WORD_RULES, WordRules
from layerline.models.sentencepiece import Prefix, merges_by_score, pieces_tokenizer
from layerline.models.special_tokens import add_special

SENTENCEPIECE_ENDS = {"bos_token_id": 1, "eos_token_id": 2}  # what a file that does not say means
OTHER_KINDS = {
    "bert": "WordPiece, which encoders have",
    "t5": "a unigram vocabulary, which T5 and encoders have",
    "rwkv": "RWKV's longest words",
    "plamo2": "PLaMo 2's",
    "hybriddna": "words and DNA",
    "whitespace": "words without spaces, which encoders have",
    "none": "none at all",
    "no_vocab": "none at all",
}
# Phi-3's marks take the spaces after them, which its tokenizer.json says and GGUF cannot; but for these.
PHI3_PLAIN = "<unk> <s> <|endoftext|>"


def tokenizer_from_gguf(metadata: Fields) -> TokenizerCard:
    """The tokenizer that `metadata` describes; ModelUnsupportedError names a kind that is not known."""
    tokens = _tokens(metadata)
    kinds = _kinds(metadata, tokens)
    tokenizer, adds_bos = _model(metadata, tokens, kinds)
    add_special(tokenizer, tokens, kinds, take_spaces=_is_phi3(metadata), plain=PHI3_PLAIN)
    bos_id = _token_id(metadata, "bos_token_id", len(tokens))
    ends = [_token_id(metadata, key, len(tokens)) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
    control = [(token, index) for index, token in enumerate(tokens) if kinds[index] == TokenType.CONTROL]
    return TokenizerCard(
        json=tokenizer.to_str(),
        add_bos=metadata.flag("tokenizer.ggml.add_bos_token", adds_bos) and bos_id is not None,
        bos_id=bos_id,
        eos_ids=end_ids(ends, control),
        chat_template=metadata.text("tokenizer.chat_template", "") or None,
        bos_token="" if bos_id is None else tokens[bos_id],
        eos_token="" if ends[0] is None else tokens[ends[0]],
    )


def _tokens(metadata: Fields) -> list[str]:
    """The vocabulary; a token without text has a name, so that there may be several."""
    tokens = metadata.list_of(str, "tokenizer.ggml.tokens")
    tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
    if len(set(tokens)) != len(tokens):
        raise ModelCorruptError(f"{metadata.where}: the vocabulary has a token twice.", remedy=REMEDY)
    return tokens


def _kinds(metadata: Fields, tokens: list[str]) -> list[int]:
    kinds = metadata.list_of(int, "tokenizer.ggml.token_type", [int(TokenType.NORMAL)] * len(tokens))
    if len(kinds) != len(tokens):
        raise metadata.wrong("tokenizer.ggml.token_type", f"a list of {len(tokens)} numbers")
    control = int(TokenType.CONTROL)
    return [control if token in UNMISTAKABLE_ENDS else kind for token, kind in zip(tokens, kinds, strict=True)]


def _token_id(metadata: Fields, key: str, count: int) -> int | None:
    if f"tokenizer.ggml.{key}" not in metadata:
        is_sentencepiece = metadata.text("tokenizer.ggml.model") == "llama"
        return SENTENCEPIECE_ENDS.get(key) if is_sentencepiece else None
    token_id = metadata.integer(f"tokenizer.ggml.{key}")
    if not 0 <= token_id < count:
        raise metadata.wrong(f"tokenizer.ggml.{key}", f"a token of the {count} in the vocabulary")
    return token_id


def _is_phi3(metadata: Fields) -> bool:
    """Whether it is Phi-3's or Phi-3.5's tokenizer: those of the later ones are byte-pair ones."""
    name = metadata.text("general.name", "").lower()
    named = metadata.text("general.architecture", "") == "phi3" or "phi-3" in name or "phi3" in name
    return named and metadata.text("tokenizer.ggml.model") == "llama"


def _model(metadata: Fields, tokens: list[str], kinds: list[int]) -> tuple[Tokenizer, bool]:
    """The tokenizer without its special tokens, and whether it adds a beginning unless the file says otherwise."""
    kind = metadata.text("tokenizer.ggml.model")
    if kind == "llama":
        return _sentencepiece_tokenizer(metadata, tokens, kinds), True
    if kind not in ("gpt2", GEMMA4):
        meant = f" ({OTHER_KINDS[kind]})" if kind in OTHER_KINDS else ""
        message = f"{metadata.where} has a tokenizer of the kind {kind!r}{meant}, which layerline does not have."
        raise ModelUnsupportedError(message, remedy="It has gpt2, llama and gemma4.")
    name = GEMMA4 if kind == GEMMA4 else metadata.text("tokenizer.ggml.pre", "")
    if name not in WORD_RULES:
        message = f"{metadata.where} has a tokenizer that cuts words by the rules {name!r}."
        raise ModelUnsupportedError(message, remedy=f"Known are {', '.join(sorted(filter(None, WORD_RULES)))}.")
    rules = WORD_RULES[name]
    merges = _merges(metadata, tokens)
    if not rules.byte_letters:
        return pieces_tokenizer(metadata.where, tokens, kinds, merges, Prefix.NONE), rules.adds_bos
    return _byte_pair_tokenizer(tokens, merges, rules), rules.adds_bos


def _sentencepiece_tokenizer(metadata: Fields, tokens: list[str], kinds: list[int]) -> Tokenizer:
    scores = _scores(metadata)
    if len(scores) != len(tokens):
        raise metadata.wrong("tokenizer.ggml.scores", f"a list of {len(tokens)} numbers")
    prefix = Prefix.EACH if metadata.flag("tokenizer.ggml.add_space_prefix", True) else Prefix.NONE
    return pieces_tokenizer(metadata.where, tokens, kinds, merges_by_score(tokens, scores), prefix)


def _scores(metadata: Fields) -> list[float]:
    """The score of each token; some files have them as whole numbers."""
    raw = metadata.raw("tokenizer.ggml.scores")
    whole = isinstance(raw, list | tuple) and raw and isinstance(raw[0], int)
    return [float(score) for score in metadata.list_of(int if whole else float, "tokenizer.ggml.scores")]


def _merges(metadata: Fields, tokens: list[str]) -> list[tuple[str, str]]:
    vocabulary = frozenset(tokens)
    merges = []
    for merge in metadata.list_of(str, "tokenizer.ggml.merges"):
        cut = merge.find(" ", 1)
        left, right = merge[:cut], merge[cut + 1 :]
        if cut < 0 or left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
            message = f"{metadata.where}: the merge {shown(merge)} does not join two tokens into a third."
            raise ModelCorruptError(message, remedy=REMEDY)
        merges.append((left, right))
    return merges


def _byte_pair_tokenizer(tokens: list[str], merges: list[tuple[str, str]], rules: WordRules) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=rules.whole_words))
    if rules.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = rules.pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
