"""Folders without a tokenizer.json: tokenizer.model of SentencePiece and tekken.json of Mistral."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from layerline.errors import ModelCorruptError, ModelUnsupportedError
from layerline.models.byte_letters import in_letters
from layerline.models.card import TokenizerCard
from layerline.models.fields import Fields
from layerline.models.gguf_file import read_gguf
from layerline.models.gguf_tokenizer import tokenizer_from_gguf
from layerline.models.sentencepiece_file import read_vocabulary
from layerline.models.tokenizer_json import tokenizer_from_folder
from tests.fakes.model_files import write_json
from tests.fakes.sentencepiece_model import bytes_field, joined, model_bytes, number_field
from tests.fakes.vocabularies import texts_and_ids, vocabularies

RUNS = ["\u2581" * count for count in (1, 2, 4, 8, 16, 3, 6, 14, 5)]
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *RUNS, "h", "e", "he", "\u2581he"]
SCORES = [0.0] * 259 + [-float(rank) for rank in range(len(PIECES) - 259)]
KINDS = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259)]
NEXT_ID = len(PIECES)
BYTES = [bytes([byte]) for byte in range(256)]
STRINGS = [*BYTES, b"he", b"ll", b"hell", b"llo", b"hello", b"  ", b"    "]


def from_folder(folder: Path) -> TokenizerCard:
    return tokenizer_from_folder(folder, Fields({}, "config.json"))


def write_model(folder: Path, settings: Mapping[str, object] | None = None, **parts: bytes) -> Path:
    (folder / "tokenizer.model").write_bytes(model_bytes(PIECES, SCORES, KINDS, **parts))
    if settings is not None:
        write_json(folder / "tokenizer_config.json", settings)
    return folder


def pieces_of(card: TokenizerCard, text: str) -> list[str]:
    return Tokenizer.from_str(card.json).encode(text, add_special_tokens=False).tokens


def write_tekken(folder: Path, **changes: Any) -> Path:
    config = {"pattern": r" ?\p{L}+|\s+", "default_vocab_size": 20 + len(STRINGS), "default_num_special_tokens": 20}
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(data).decode(), "token_str": None}
        for rank, data in enumerate(STRINGS)
    ]
    content = {"config": {**config, **changes.pop("config", {})}, "vocab": vocab, **changes}
    (folder / "tekken.json").write_text(json.dumps(content))
    return folder


def test_a_sentencepiece_model_is_read(tmp_path: Path) -> None:
    card = from_folder(write_model(tmp_path))
    assert pieces_of(card, "he h\u00e9") == ["\u2581he", "\u2581", "h", "<0xC3>", "<0xA9>"]
    assert Tokenizer.from_str(card.json).decode([1, 271, 268]) == "heh"
    assert (card.add_bos, card.bos_id, card.bos_token, card.eos_ids, card.eos_token) == (True, 1, "<s>", (2,), "</s>")


def test_runs_of_spaces_are_joined_from_the_left(tmp_path: Path) -> None:
    made = Tokenizer.from_str(
        from_folder(write_model(tmp_path, normalizer=number_field(3, 0) + number_field(4, 0))).json
    )
    ranks = dict(zip(PIECES, (-score for score in SCORES), strict=True))
    for count in range(1, 70):
        assert made.encode(" " * count).tokens == joined("\u2581" * count, ranks.get)


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        ({}, ["\u2581he", "<s>", "\u2581he"]),
        ({"legacy": True}, ["\u2581he", "<s>", "\u2581he"]),
        ({"legacy": False}, ["\u2581he", "<s>", "he"]),
        ({"add_prefix_space": False}, ["he", "<s>", "he"]),
    ],
)
def test_where_a_space_is_put_before(tmp_path: Path, settings: Mapping[str, object], pieces: list[str]) -> None:
    assert pieces_of(from_folder(write_model(tmp_path, settings)), "he<s>he") == pieces


def test_a_sentencepiece_model_may_say_that_no_space_is_put_before(tmp_path: Path) -> None:
    card = from_folder(write_model(tmp_path, normalizer=number_field(3, 0) + number_field(4, 0)))
    assert pieces_of(card, "he he") == ["he", "\u2581he"]


def test_tokens_that_are_added_later_have_their_ids_and_take_spaces_where_they_say_so(tmp_path: Path) -> None:
    later = {
        "2": {"content": "</s>", "special": True, "rstrip": True},
        str(NEXT_ID): {"content": "<|user|>", "special": True, "rstrip": True},
        str(NEXT_ID + 1): {"content": "<tool>", "special": False, "normalized": False},
    }
    card = from_folder(write_model(tmp_path, {"added_tokens_decoder": later, "eos_token": "<|user|>"}))
    made = Tokenizer.from_str(card.json)
    ids = made.encode("<|user|>\nhe<tool></s> he", add_special_tokens=False).ids
    assert ids == [NEXT_ID, 271, NEXT_ID + 1, 2, 271]
    assert made.decode(ids) == "he<tool> he"
    assert card.eos_ids == (NEXT_ID, 2)[::-1]


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ({str(NEXT_ID + 1): {"content": "<|user|>"}}, "the id 273, which is not the next one"),
        ({"5": {"content": "<s>"}}, "the id 5, which is not the next one"),
        ({"x": {"content": "<s>"}}, "the id x, which is not the next one"),
        ({"2": {}}, "content is missing"),
        ({"2": 3}, "must be an object"),
    ],
)
def test_tokens_that_cannot_be_added(tmp_path: Path, later: Mapping[str, object], reason: str) -> None:
    write_model(tmp_path, {"added_tokens_decoder": later})
    with pytest.raises(ModelCorruptError, match=reason):
        from_folder(tmp_path)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"trainer": number_field(3, 1)}, "has a unigram vocabulary, and layerline reads byte-pair ones"),
        ({"trainer": b""}, "has a unigram vocabulary"),
        ({"normalizer": b""}, "leaves out spaces before it cuts, which layerline cannot do"),
        ({"normalizer": bytes_field(2, b"map") + number_field(4, 0)}, "replaces characters before it cuts"),
    ],
)
def test_sentencepiece_models_of_other_kinds_are_refused(tmp_path: Path, parts: dict[str, bytes], says: str) -> None:
    with pytest.raises(ModelUnsupportedError, match=says) as raised:
        from_folder(write_model(tmp_path, None, **parts))
    assert "AutoTokenizer" in raised.value.remedy


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (number_field(9, 1), "it has no pieces"),
        (b"IQ== 0\nIg== 1\n", "is not a SentencePiece model"),  # tiktoken's form, which Llama 3 has under that name
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number without an end"),
        (b"\x0a\x7f", "it ends within a field"),
        (b"\x0b", "a field of the kind 3"),
        (bytes_field(1, b""), "a piece without a text"),
        (bytes_field(1, bytes_field(1, b"a") + number_field(2, 1)), "not one of four bytes"),
        (bytes_field(1, bytes_field(1, b"\xff")), "utf-8"),
        (model_bytes(["a", "a"], [0.0, 0.0], [1, 1]), "a piece twice"),
        (model_bytes(["a"], [float("nan")], [1]), "a score that is not a number"),
        (model_bytes(["a"], [0.0], [1]), "no token for the byte <0x00>"),
    ],
)
def test_malformed_sentencepiece_models(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "tokenizer.model").write_bytes(data)
    with pytest.raises(ModelCorruptError, match=reason):
        from_folder(tmp_path)


def test_tokens_that_only_an_older_file_adds_are_refused(tmp_path: Path) -> None:
    write_json(write_model(tmp_path) / "added_tokens.json", {"<|user|>": NEXT_ID})
    with pytest.raises(ModelUnsupportedError, match=r"only in added_tokens\.json"):
        from_folder(tmp_path)


def test_tekken_has_its_special_tokens_first_and_joins_by_rank(tmp_path: Path) -> None:
    card = from_folder(write_tekken(tmp_path))
    made = Tokenizer.from_str(card.json)
    ids = made.encode("<s>[INST]hello  hells", add_special_tokens=False).ids
    strings = [STRINGS[token_id - 20] for token_id in ids[2:]]
    assert (ids[:2], strings) == ([1, 3], [b"hello", b"  ", b"hell", b"s"])
    assert made.decode(ids) == "hello  hells"
    assert (card.add_bos, card.bos_token, card.eos_ids, card.eos_token) == (True, "<s>", (2,), "</s>")


def test_tekken_may_name_its_special_tokens_and_leave_some_without_a_name(tmp_path: Path) -> None:
    names = [("<unk>", True), ("<s>", True), ("</s>", True), ("[THINK]", False)]
    listed = [{"rank": rank, "token_str": name, "is_control": hidden} for rank, (name, hidden) in enumerate(names)]
    made = Tokenizer.from_str(from_folder(write_tekken(tmp_path, special_tokens=listed)).json)
    ids = made.encode("[THINK]<SPECIAL_4>he").ids
    assert ids == [3, 4, 20 + 256]
    assert made.decode(ids) == "[THINK]he"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": {"default_vocab_size": 100}}, "a vocabulary that 263 byte strings fill"),
        ({"config": {"default_vocab_size": 1000}}, "a vocabulary that 263 byte strings fill"),
        ({"config": {"default_num_special_tokens": 2}}, "room for 20 special tokens"),
        ({"config": {"pattern": "("}}, "is not a tokenizer"),
        ({"config": {"pattern": None}}, "pattern is missing"),
        ({"special_tokens": [{"rank": 1, "token_str": "<s>"}]}, "in the order of ranks"),
        ({"special_tokens": [{"rank": 0, "token_str": "he"}]}, "a token twice"),
        ({"vocab": [{"rank": 0, "token_bytes": "!"}] * 263}, "must be base64"),
        ({"vocab": [{"rank": 0, "token_bytes": "AA=="}] * 263}, "must be the next one"),
    ],
)
def test_malformed_tekkens(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        from_folder(write_tekken(tmp_path, **changes))


def test_a_tokenizer_json_comes_before_other_files(tmp_path: Path) -> None:
    write_tekken(write_model(tmp_path))
    assert from_folder(tmp_path).bos_id == 1
    assert "hello" in from_folder(tmp_path).json
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelCorruptError, match=r"tokenizer\.json is not a tokenizer"):
        from_folder(tmp_path)


@pytest.mark.slow
def test_a_real_sentencepiece_vocabulary_is_the_same_from_either_container(tmp_path: Path) -> None:
    path = vocabularies() / "ggml-vocab-llama-spm.gguf"
    metadata = read_gguf(path).metadata
    pieces, scores, kinds = (metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type"))
    (tmp_path / "tokenizer.model").write_bytes(model_bytes(pieces, scores, kinds))  # type: ignore[arg-type]
    made = Tokenizer.from_str(from_folder(tmp_path).json)
    made.encode_special_tokens = True
    assert [made.encode(text).ids for text, _ in texts_and_ids("llama-spm")] == [
        ids for _, ids in texts_and_ids("llama-spm")
    ]
    of_gguf = tokenizer_from_gguf(Fields(dict(metadata), path.name))
    assert json.loads(from_folder(tmp_path).json)["model"] == json.loads(of_gguf.json)["model"]


def some_words(letters: str) -> list[str]:
    chance = random.Random(3)
    return ["".join(chance.choices(letters, k=chance.randrange(1, 40))) for _ in range(300)]


@pytest.mark.more
def test_a_real_sentencepiece_model_joins_as_sentencepiece_does(tmp_path: Path) -> None:
    file = vocabularies() / "tokenizer.model"
    (tmp_path / "tokenizer.model").symlink_to(file)
    made, read = Tokenizer.from_str(from_folder(tmp_path).json), read_vocabulary(file)
    ranks = {
        piece: -score for piece, score, kind in zip(read.pieces, read.scores, read.kinds, strict=True) if kind == 1
    }
    for text in [*some_words("etaoinshr  "), *some_words("   a"), *some_words("=-_/.(){} ")]:
        assert made.encode(text).tokens == joined("\u2581" + text.replace(" ", "\u2581"), ranks.get)


@pytest.mark.slow
def test_a_real_tekken_joins_as_tiktoken_does(tmp_path: Path) -> None:
    file = vocabularies() / "tekken.json"
    (tmp_path / "tekken.json").symlink_to(file)
    made = Tokenizer.from_str(from_folder(tmp_path).json)
    entries = json.loads(file.read_text())["vocab"][: 131072 - 1000]
    ranks = {in_letters(base64.b64decode(entry["token_bytes"])): entry["rank"] for entry in entries}
    for text in [
        *some_words("etaoinshr  "),
        *some_words("    a"),
        *some_words("=-_/.(){} \n"),
        *some_words("日本語はé "),
    ]:
        assert made.pre_tokenizer is not None
        words = [word for word, _ in made.pre_tokenizer.pre_tokenize_str(text)]
        assert made.encode(text).tokens == [token for word in words for token in joined(word, ranks.get)]
