"""Folders with the tiktoken.model of Kimi K2."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.card import TokenizerCard
from layerline.models.fields import Fields
from layerline.models.tokenizer_json import tokenizer_from_folder
from tests.fakes.model_files import write_json

BYTES = [bytes([byte]) for byte in range(256)]
STRINGS = [*BYTES, b"he", b"ll", b"hell", b"llo", b"hello", b"  ", b"    "]


def write_tiktoken(folder: Path, lines: Sequence[str] | None = None, **names: str) -> Path:
    """`names` are those of special tokens, by how many come before them."""
    usual = [f"{base64.b64encode(data).decode()} {rank}" for rank, data in enumerate(STRINGS)]
    (folder / "tiktoken.model").write_text("\n".join(usual if lines is None else lines))
    tokens = {str(len(STRINGS) + int(place[1:])): {"content": text} for place, text in names.items()}
    settings = {"added_tokens_decoder": tokens, "bos_token": "[BOS]", "eos_token": "[EOS]"}
    write_json(folder / "tokenizer_config.json", settings)
    return folder


def kimi(folder: Path, model_type: str = "kimi_k2") -> TokenizerCard:
    return tokenizer_from_folder(folder, Fields({"model_type": model_type}, "config.json"))


def test_tiktoken_has_its_special_tokens_last_and_joins_by_rank(tmp_path: Path) -> None:
    card = kimi(write_tiktoken(tmp_path, _0="[BOS]", _1="[EOS]"))
    made = Tokenizer.from_str(card.json)
    ids = made.encode("[BOS]hello hells", add_special_tokens=False).ids
    first_special = len(STRINGS)
    assert ids[0] == first_special
    assert [STRINGS[token_id] for token_id in ids[1:]] == [b"hello", b" ", b"hell", b"s"]
    assert made.decode(ids) == "hello hells"
    assert made.token_to_id(f"<|reserved_token_{first_special + 255}|>") == first_special + 255
    assert (card.add_bos, card.bos_id, card.eos_ids) == (False, first_special, (first_special + 1,))


@pytest.mark.parametrize(
    ("lines", "names", "reason"),
    [
        (["!"], {}, "line 1 is not base64"),
        (["AA== 1"], {}, "line 1 is not the next byte string"),
        (["AA== 0", "AA== 1"], {}, "line 2 is not the next byte string"),
        (["AA== 0"], {}, "lacks some single bytes"),
        (None, {"_0": "he"}, "adds a token that"),
        (None, {"_0": "a b", "_1": "a b"}, "no text twice"),
    ],
)
def test_malformed_tiktokens(tmp_path: Path, lines: list[str] | None, names: dict[str, str], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        kimi(write_tiktoken(tmp_path, lines, **names))


def test_a_tiktoken_of_another_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnsupportedError, match=r"family 'qwen' cuts text into words"):
        kimi(write_tiktoken(tmp_path), "qwen")
