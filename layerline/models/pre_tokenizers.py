"""How byte-pair tokenizers of GGUF files cut text into words, by the name in `tokenizer.ggml.pre`.

Sources: the models' own tokenizer.json files, and for names with no such file src/llama-vocab.cpp of
llama.cpp. Does not know vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WordRules:
    """`patterns` cut one after the other; `whole_words` takes a word that is a token as it is, merges aside.

    `adds_bos` holds where the file does not say; `nfc` composes characters first.
    """

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False
    nfc: bool = False

    def pre_tokenizer(self) -> PreTokenizer:
        """The rules as the `tokenizers` library has them."""
        splits = [Split(Regex(pattern), behavior="isolated") for pattern in self.patterns]
        return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


_DIGITS_APART = WordRules(patterns=(_DIGIT, _GPT2))
_LLAMA3 = WordRules(patterns=(f"{_CONTRACTIONS}|{_REST % '{1,3}'}",), whole_words=True, adds_bos=True)

WORD_RULES = {
    "gpt-2": WordRules(patterns=(_GPT2,)),
    "smollm": _DIGITS_APART,
    "starcoder": _DIGITS_APART,
    "refact": _DIGITS_APART,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": WordRules(patterns=(f"{_CONTRACTIONS}|{_REST % ''}",), nfc=True),
}
