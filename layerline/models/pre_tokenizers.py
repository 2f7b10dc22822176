"""How byte-pair tokenizers of GGUF files treat text, by the name in `tokenizer.ggml.pre`.

Source: `llama_vocab::impl::load` of llama.cpp (src/llama-vocab.cpp), and for what it leaves out (composing characters)
the models' own tokenizer files. Does not know vocabularies.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from layerline.models import word_patterns as patterns


@dataclass(frozen=True, kw_only=True, slots=True)
class WordRules:
    """`patterns` cut one after the other; `whole_words` takes a word that is a token as it is, merges aside.

    `adds_bos` holds where the file does not say; `nfc` composes characters first. `byte_patterns` cut after the bytes
    have become letters of GPT-2's alphabet, in which some bytes are digits. Without `byte_letters` they do not: the
    tokens are, as SentencePiece's are, plain text with U+2581 for a space.
    """

    patterns: tuple[str, ...]
    byte_patterns: tuple[str, ...] = ()
    whole_words: bool = False
    adds_bos: bool = False
    nfc: bool = False
    byte_letters: bool = True

    def pre_tokenizer(self) -> PreTokenizer:
        """The rules as the `tokenizers` library has them."""
        bytes_to_letters = [ByteLevel(add_prefix_space=False, use_regex=False)] if self.byte_letters else []
        return Sequence([*_splits(self.patterns), *bytes_to_letters, *_splits(self.byte_patterns)])


def _splits(patterns_: tuple[str, ...]) -> list[PreTokenizer]:
    return [Split(Regex(pattern), behavior="isolated") for pattern in patterns_]


def _named(rules: WordRules, *names: str) -> dict[str, WordRules]:
    return dict.fromkeys(names, rules)


_DEFAULT = WordRules(
    patterns=(patterns.DEFAULT_PUNCTUATION, patterns.GPT2, patterns.DIGITS, patterns.THREE_DIGITS),
)
_FALCON = WordRules(
    patterns=(patterns.FALCON_PUNCTUATION, patterns.GPT2),
    byte_patterns=(patterns.DIGITS, patterns.THREE_DIGITS),
)
_GPT2 = WordRules(patterns=(patterns.GPT2,))
_NEOX = dataclasses.replace(_GPT2, nfc=True)
_DIGITS_APART = WordRules(patterns=(patterns.DIGIT, patterns.GPT2))
_COMMAND_R = dataclasses.replace(_DIGITS_APART, nfc=True)
_LLAMA3_WORDS = WordRules(patterns=(patterns.LLAMA3,))
_LLAMA3 = dataclasses.replace(_LLAMA3_WORDS, whole_words=True, adds_bos=True)
_QWEN2_WORDS = WordRules(patterns=(patterns.QWEN2,))
_QWEN2 = dataclasses.replace(_QWEN2_WORDS, nfc=True)
_QWEN35 = WordRules(patterns=(patterns.QWEN35,), nfc=True)
_MINICPM5 = WordRules(patterns=(patterns.UP_TO_THREE_DIGITS, patterns.MINICPM5), whole_words=True)
_LAGUNA = WordRules(patterns=(patterns.LINES, patterns.QWEN2))
_GPT4O = WordRules(patterns=(patterns.GPT4O,))
_COHERE2 = WordRules(patterns=(patterns.DIGITS_FROM_THE_RIGHT, patterns.GPT4O))
_TEKKEN = WordRules(patterns=(patterns.TEKKEN,), whole_words=True, adds_bos=True)
_YOUTU = WordRules(patterns=(patterns.YOUTU_SCRIPTS, patterns.YOUTU), whole_words=True)
_DEEPSEEK_LLM = WordRules(
    patterns=(
        patterns.DEEPSEEK_LINE_END,
        patterns.DEEPSEEK_CASED,
        patterns.DEEPSEEK_SIGNS,
        patterns.DEEPSEEK_LAST_SPACES,
        patterns.DEEPSEEK_IDEOGRAMS,
        patterns.DIGIT,
    )
)
_DEEPSEEK_CODER = WordRules(
    patterns=(
        patterns.DEEPSEEK_LINE_END,
        patterns.DEEPSEEK_LETTERS,
        patterns.DEEPSEEK_PUNCTUATION,
        patterns.DEEPSEEK_IDEOGRAMS,
        patterns.DIGIT,
    )
)
_DEEPSEEK3 = WordRules(patterns=(patterns.UP_TO_THREE_DIGITS, patterns.DEEPSEEK3_IDEOGRAMS, patterns.DEEPSEEK3))
_AFMOE = WordRules(patterns=(patterns.ALL_DIGITS_FROM_THE_RIGHT, patterns.AFMOE_SCRIPTS, patterns.DEEPSEEK3))
_BLOOM = WordRules(patterns=(patterns.BLOOM,))
_BAILING = WordRules(patterns=(patterns.BAILING,))
_PIECES = WordRules(patterns=(), byte_letters=False)

GEMMA4 = "gemma4"

WORD_RULES = {
    **_named(_DEFAULT, "", "default"),  # files from before the key have none
    **_named(_FALCON, "falcon"),
    **_named(_GPT2, "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "jina-v1-en", "jina-v2-code"),
    **_named(_GPT2, "roberta-bpe", "gigachat", "a.x-4.0", "mellum", "jais", "trillion", "granite-docling", "exaone4"),
    **_named(_NEOX, "mpt", "olmo", "modern-bert"),
    **_named(_DIGITS_APART, "smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"),
    **_named(_COMMAND_R, "command-r"),
    **_named(_LLAMA3, "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    **_named(_LLAMA3, "jina-v5-nano"),
    **_named(_LLAMA3_WORDS, "dbrx", "smaug-bpe", "glm4", "chatglm-bpe"),
    **_named(WordRules(patterns=(patterns.JAIS2,)), "jais-2"),
    **_named(_QWEN2, "qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2", "stablelm2", "hunyuan"),
    **_named(_QWEN2_WORDS, "grok-2", "solar-open"),
    **_named(_QWEN35, "qwen35"),
    **_named(_MINICPM5, "minicpm5"),
    **_named(_LAGUNA, "laguna"),
    **_named(WordRules(patterns=(patterns.SEED_CODER,)), "seed-coder"),
    **_named(_BAILING, "bailingmoe", "bailingmoe2", "llada-moe"),
    **_named(WordRules(patterns=(patterns.EXAONE_MOE,)), "exaone-moe"),
    **_named(_GPT4O, "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
    **_named(dataclasses.replace(_GPT4O, whole_words=True), "granite-embed-multi-97m"),
    **_named(_COHERE2, "tiny_aya", "cohere2moe"),
    **_named(_TEKKEN, "tekken"),
    **_named(_YOUTU, "youtu"),
    **_named(WordRules(patterns=(patterns.KIMI,)), "kimi-k2"),
    **_named(_DEEPSEEK_LLM, "deepseek-llm"),
    **_named(_DEEPSEEK_CODER, "deepseek-coder"),
    **_named(_DEEPSEEK3, "deepseek-v3", "hunyuan-dense", "joyai-llm"),
    **_named(_AFMOE, "afmoe"),
    **_named(_BLOOM, "bloom", "poro-chat", "gpt3-finnish"),
    **_named(WordRules(patterns=(patterns.BLOOM, patterns.DIGIT)), "viking"),
    **_named(WordRules(patterns=(patterns.DIGITS, patterns.BEFORE_EACH_THREE_DIGITS)), "superbpe"),
    **_named(WordRules(patterns=patterns.CHAMELEON, adds_bos=True), "chameleon"),
    **_named(dataclasses.replace(_PIECES, adds_bos=True), GEMMA4, "granite-embed-multi-311m"),
    **_named(_PIECES, "sarvam-moe"),
}
