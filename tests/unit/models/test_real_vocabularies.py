"""Tokenizers made from GGUF against llama.cpp's ids for its own texts, and against the models' tokenizer.json."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gguf import TokenType
from tokenizers import Tokenizer, normalizers

from layerline.errors import ModelUnsupportedError
from layerline.models.fields import Fields
from layerline.models.gguf_file import read_gguf
from layerline.models.gguf_tokenizer import tokenizer_from_gguf
from tests.fakes.vocabularies import metadata_of, texts_and_ids, tokenizer_json, vocabularies

SLOW = pytest.mark.slow

pytestmark = pytest.mark.more

NAMES = (
    *("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm"),
    *("mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
)
LARGE = ("command-r", "gemma-4")  # vocabularies of a quarter of a million tokens
ENCODERS = ("bert-bge", "nomic-bert-moe")
MARKS = ("<|im_start|>", "<|im_end|>", "<|eot_id|>", "<start_of_turn>", "<think>", "</s>", "<s>", "\n\n\n", "   ")
SCRIPTS = (
    *((0x20, 0x7E),) * 8,
    *((0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x5D0, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1E00, 0x1EFF)),
    *((0x2000, 0x22FF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF), (0x20000, 0x20100)),
)


def from_gguf(metadata: dict[str, Any], where: str = "made.gguf") -> Tokenizer:
    return Tokenizer.from_str(tokenizer_from_gguf(Fields(metadata, where)).json)


def from_file(name: str) -> Tokenizer:
    path = vocabularies() / f"ggml-vocab-{name}.gguf"
    return from_gguf(dict(read_gguf(path).metadata), path.name)


def ids(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def many_texts() -> list[str]:
    """llama.cpp's texts, its templates, and letters of all scripts with spaces, digits and marks among them."""
    texts = [text for text, _ in texts_and_ids("qwen35")]
    texts += [path.read_text(encoding="utf-8") for path in sorted((vocabularies() / "templates").glob("*.jinja"))]
    chance = random.Random(7)
    for _ in range(2000):
        pieces = []
        for _ in range(chance.randrange(1, 30)):
            low, high = chance.choice(SCRIPTS)
            word = "".join(chr(chance.randint(low, high)) for _ in range(chance.randrange(1, 6)))
            pieces.append(chance.choice([word, word, str(chance.randrange(10**6)), "'ll", chance.choice(MARKS)]))
            pieces.append(chance.choice(["", " ", " ", "  ", "\n", "\r\n", "\t"]))
        texts.append("".join(pieces))
    return texts


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW) if name in LARGE else name for name in NAMES])
def test_ids_are_those_of_llama_cpp(name: str) -> None:
    made = from_file(name)
    made.encode_special_tokens = True  # llama.cpp's test leaves control tokens unread in a text
    if name == "qwen35":
        made.normalizer = normalizers.Sequence([])  # its ids are of llama.cpp, which does not compose characters
    texts, expected = zip(*texts_and_ids(name), strict=True)
    assert len(texts) >= 46
    assert ids(made, list(texts)) == list(expected)


@pytest.mark.parametrize("name", ENCODERS)
def test_tokenizers_of_encoders_are_refused(name: str) -> None:
    path = vocabularies() / f"ggml-vocab-{name}.gguf"
    with pytest.raises(ModelUnsupportedError, match=r"of the kind '(bert|t5)' \(.*encoders have\)"):
        tokenizer_from_gguf(Fields(dict(read_gguf(path).metadata), path.name))


@pytest.mark.parametrize(
    ("original", "keys"),
    [
        ("llama3_1", {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe"}),
        ("qwen3", {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2"}),
        pytest.param("gemma3", {"tokenizer.ggml.model": "gemma4"}, marks=SLOW),
    ],
)
def test_ids_and_texts_are_those_of_the_tokenizer_json(original: str, keys: dict[str, Any]) -> None:
    made, authors = from_gguf({**metadata_of(original), **keys}), Tokenizer.from_str(tokenizer_json(original))
    texts = many_texts()
    found = ids(made, texts)
    assert found == ids(authors, texts)
    assert [made.decode(each) for each in found] == [authors.decode(each) for each in found]


@pytest.mark.slow
def test_a_sentencepiece_vocabulary_has_the_ids_of_its_tokenizer_json() -> None:
    metadata = metadata_of("gemma3")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    for index, token in enumerate(tokens):
        if len(token) > 1 and not token.strip(token[0]) and token[0] in "\n\t\u2581":  # the converter says so of them
            metadata["tokenizer.ggml.token_type"][index] = int(TokenType.USER_DEFINED)
            tokens[index] = token.replace("\u2581", " ")
    scores = [-float(index) for index in range(len(tokens))]
    keys = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": scores, "tokenizer.ggml.add_space_prefix": False}
    made, authors = from_gguf({**metadata, **keys}), Tokenizer.from_str(tokenizer_json("gemma3"))
    texts = many_texts()
    assert ids(made, texts) == ids(authors, texts)


@pytest.mark.parametrize(("file", "original"), [pytest.param("llama-bpe", "llama3_1", marks=SLOW), ("qwen2", "qwen3")])
def test_words_have_the_ids_of_the_later_model_of_the_same_vocabulary(file: str, original: str) -> None:
    made, authors = from_file(file), Tokenizer.from_str(tokenizer_json(original))
    texts = [text for text in many_texts() if not any(mark in text for mark in ("<|", "|>", "<think>", "<tool"))]
    assert len(texts) > 500
    assert ids(made, texts) == ids(authors, texts)
