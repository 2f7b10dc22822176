"""Real tokenizers without their models, where scripts/get-vocabularies has brought them."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from gguf import TokenType

SEPARATOR = "\n__ggml_vocab_test__\n"


def vocabularies() -> Path:
    """The folder of the tokenizers; the test is skipped if they are not in the cache."""
    folder = Path(os.environ.get("LAYERLINE_CACHE") or platformdirs.user_cache_dir("layerline")) / "vocabularies"
    if not (folder / "complete").exists():
        pytest.skip(f"{folder} is not in the cache; scripts/get-vocabularies brings it")
    return folder


def texts_and_ids(name: str) -> list[tuple[str, list[int]]]:
    """The texts that llama.cpp tests the vocabulary `name` with, and the ids of each."""
    file = vocabularies() / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{file}.inp").read_bytes().decode().split(SEPARATOR)
    lines = Path(f"{file}.out").read_bytes().decode().splitlines()
    if texts[-1] == "":
        texts.pop()  # what follows the last separator
    return [(text, [int(token_id) for token_id in line.split()]) for text, line in zip(texts, lines, strict=True)]


@cache
def tokenizer_json(name: str) -> str:
    """The tokenizer.json of llama3_1, qwen3 or gemma3."""
    return (vocabularies() / f"{name}.json").read_text(encoding="utf-8")


def metadata_of(name: str) -> dict[str, Any]:
    """The vocabulary of a tokenizer.json as llama.cpp's converter puts it into GGUF, without model and rules."""
    content = json.loads(tokenizer_json(name))
    ids = dict(content["model"]["vocab"])
    added = {token["content"]: token for token in content["added_tokens"]}
    ids |= {text: token["id"] for text, token in added.items()}
    tokens = sorted(ids, key=ids.__getitem__)
    kinds = [_kind(token, added) for token in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
    }


def _kind(token: str, added: dict[str, Any]) -> int:
    if token in added:
        return int(TokenType.CONTROL if added[token]["special"] else TokenType.USER_DEFINED)
    return int(TokenType.BYTE if token.startswith("<0x") and len(token) == 6 else TokenType.NORMAL)
