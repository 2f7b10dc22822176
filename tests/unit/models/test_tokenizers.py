"""Tokenizers from GGUF metadata and from folders: the same ids as the originals, and the right ends and beginnings."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs
import pytest
from tokenizers import Tokenizer

from layerline.errors import ModelCorruptError
from layerline.models.card import TokenizerCard
from layerline.models.fields import Fields
from layerline.models.gguf_file import read_gguf
from layerline.models.gguf_tokenizer import tokenizer_from_gguf
from layerline.models.json_file import MAX_JSON_BYTES
from layerline.models.tokenizer_json import MAX_TOKENIZER_BYTES, tokenizer_from_folder
from tests.fakes import tiny_tokenizer
from tests.fakes.model_files import TinyModel, write_folder, write_json
from tests.fakes.tiny_tokenizer import CHAT_TEMPLATE, tokenizer_metadata

TEXT = "hello world, 1234 it's\n\n  <|im_start|>héllo<|im_end|> \U0001f600 \u4f60\u597d"
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"


def from_gguf(metadata: Mapping[str, object]) -> TokenizerCard:
    return tokenizer_from_gguf(Fields({**tokenizer_metadata(), **metadata}, "tiny.gguf"))


def from_folder(folder: Path, config: Mapping[str, object] | None = None) -> TokenizerCard:
    return tokenizer_from_folder(folder, Fields(config or {}, "config.json"))


def real_model(name: str) -> Path:
    cache = os.environ.get("LAYERLINE_CACHE") or platformdirs.user_cache_dir("layerline")
    path = Path(cache) / "models" / name
    if not path.exists():
        pytest.skip(f"{name} is not in the cache; scripts/get-model brings it")
    return path


def test_a_gguf_tokenizer_gives_the_ids_of_the_original() -> None:
    card = from_gguf({})
    made, original = Tokenizer.from_str(card.json), tiny_tokenizer.tokenizer()
    ids = original.encode(TEXT).ids
    assert made.encode(TEXT, add_special_tokens=False).ids == ids
    assert made.decode(ids, skip_special_tokens=False) == TEXT
    assert made.decode(ids) == original.decode(ids)


def test_what_goes_with_a_gguf_tokenizer() -> None:
    card = from_gguf({})
    assert (card.bos_id, card.bos_token, card.add_bos) == (1, "<|im_start|>", False)
    assert (card.eos_ids, card.eos_token) == ((0, 2), "<|im_end|>")
    assert card.chat_template == CHAT_TEMPLATE


def test_every_end_of_a_turn_is_an_end() -> None:
    assert from_gguf({"tokenizer.ggml.eos_token_id": 7, "tokenizer.ggml.eot_token_id": 9}).eos_ids == (0, 2, 7, 9)
    assert from_gguf({"tokenizer.ggml.eos_token_id": None}).eos_ids == (0, 2)


@pytest.mark.parametrize(
    ("metadata", "adds"),
    [
        ({"tokenizer.ggml.add_bos_token": True}, True),
        ({"tokenizer.ggml.add_bos_token": None}, False),
        ({"tokenizer.ggml.add_bos_token": None, "tokenizer.ggml.pre": "llama-bpe"}, True),
        ({"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.pre": "llama-bpe"}, False),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": None}, False),
    ],
)
def test_whether_a_beginning_is_added(metadata: Mapping[str, object], adds: bool) -> None:
    assert from_gguf(metadata).add_bos is adds


def test_a_file_without_word_rules_has_the_default_ones() -> None:
    assert from_gguf({"tokenizer.ggml.pre": None}).json == from_gguf({"tokenizer.ggml.pre": "default"}).json


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "a token twice"),
        ({"tokenizer.ggml.tokens": None}, r"tokenizer\.ggml\.tokens is missing"),
        ({"tokenizer.ggml.tokens": [1]}, "a list of str values"),
        ({"tokenizer.ggml.token_type": [1]}, r"token_type must be a list of \d+ numbers"),
        ({"tokenizer.ggml.merges": ["h zzz"]}, "merge 'h zzz'"),
        ({"tokenizer.ggml.merges": ["h"]}, "merge 'h'"),
        ({"tokenizer.ggml.eos_token_id": 1 << 20}, "eos_token_id must be a token"),
    ],
)
def test_malformed_metadata(metadata: Mapping[str, object], reason: str) -> None:
    with pytest.raises(ModelCorruptError, match=reason):
        from_gguf(metadata)


def test_a_folder_gives_its_tokenizer_as_it_is(tmp_path: Path) -> None:
    write_folder(tmp_path, TinyModel())
    card = from_folder(tmp_path, {"eos_token_id": [7]})
    assert card.json == (tmp_path / "tokenizer.json").read_text()
    assert (card.bos_id, card.bos_token, card.add_bos) == (1, "<|im_start|>", False)
    assert (card.eos_ids, card.eos_token) == ((0, 2, 7), "<|im_end|>")
    assert card.chat_template == CHAT_TEMPLATE


def test_only_tokenizer_json_must_be_there(tmp_path: Path) -> None:
    write_folder(tmp_path, TinyModel())
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "generation_config.json").unlink()
    card = from_folder(tmp_path, {"bos_token_id": 1})
    assert (card.bos_id, card.eos_ids, card.chat_template) == (1, (0, 2), None)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(ModelCorruptError, match=r"has no tokenizer\.json"):
        from_folder(tmp_path)


def test_special_tokens_may_be_objects_and_templates_a_list_or_a_file(tmp_path: Path) -> None:
    write_folder(tmp_path, TinyModel())
    templates = [{"name": "tools", "template": "other"}, {"name": "default", "template": "this"}]
    settings = {"bos_token": {"content": "<|endoftext|>"}, "add_bos_token": True, "chat_template": templates}
    write_json(tmp_path / "tokenizer_config.json", settings)
    card = from_folder(tmp_path)
    assert (card.bos_id, card.bos_token, card.add_bos, card.chat_template) == (0, "<|endoftext|>", True, "this")
    (tmp_path / "chat_template.jinja").write_text("the file")
    assert from_folder(tmp_path).chat_template == "the file"


def test_a_beginning_that_the_tokenizer_adds_by_itself_is_seen(tmp_path: Path) -> None:
    write_folder(tmp_path, TinyModel())
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    write_json(tmp_path / "tokenizer.json", content)
    assert from_folder(tmp_path).add_bos is True


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("tokenizer.json", "{}", "is not a tokenizer"),
        ("tokenizer.json", "junk", "is not a tokenizer"),
        ("tokenizer_config.json", "[]", "does not hold a JSON object"),
        ("tokenizer_config.json", '{"eos_token": "<nowhere>"}', "<nowhere>"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template must be a string"),
        (
            "tokenizer_config.json",
            '{"chat_template": "\\ud800"}',
            "chat_template must be a string of whole characters",
        ),
        ("generation_config.json", '{"eos_token_id": "2"}', "eos_token_id must be a whole number"),
        ("generation_config.json", '{"eos_token_id": [-1]}', "eos_token_id must be one or more token ids"),
    ],
)
def test_malformed_files_of_a_folder(tmp_path: Path, file: str, content: str, reason: str) -> None:
    write_folder(tmp_path, TinyModel())
    (tmp_path / file).write_text(content)
    with pytest.raises(ModelCorruptError, match=reason):
        from_folder(tmp_path)


def test_a_tokenizer_at_which_the_library_panics_is_corrupt(tmp_path: Path) -> None:
    write_folder(tmp_path, TinyModel())
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["continuing_subword_prefix"] = "x" * 200
    write_json(tmp_path / "tokenizer.json", content)
    with pytest.raises(ModelCorruptError, match=r"is not a tokenizer: .*out of range"):
        from_folder(tmp_path)


@pytest.mark.parametrize(
    ("file", "size_bytes"), [("tokenizer.json", MAX_TOKENIZER_BYTES), ("generation_config.json", MAX_JSON_BYTES)]
)
def test_files_that_are_too_large_are_refused_unread(tmp_path: Path, file: str, size_bytes: int) -> None:
    write_folder(tmp_path, TinyModel())
    with open(tmp_path / file, "wb") as large:
        large.truncate(size_bytes + 1)
    with pytest.raises(ModelCorruptError, match=rf"{file} is larger than {size_bytes >> 20} MiB"):
        from_folder(tmp_path)


def test_smollm2_gives_the_ids_of_its_authors() -> None:
    path = real_model("SmolLM2-135M-Instruct.Q4_1.gguf")
    card = tokenizer_from_gguf(Fields(read_gguf(path).metadata, path.name))
    text = f"{SYSTEM}<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    ids = "1 9690 198 2683 359 253 5356 11173 30 2 198 1 4093 198 1780 314 260 3575 282 4649 47 2 198 1 520 9531 198"
    made = Tokenizer.from_str(card.json)
    assert made.encode(text, add_special_tokens=False).ids == [int(token_id) for token_id in ids.split()]
    assert made.decode([504, 3575, 282, 4649, 314, 7042, 30]) == "The capital of France is Paris."
    assert (card.add_bos, card.bos_id, card.eos_ids) == (False, 1, (0, 2, 4))


@pytest.mark.slow
def test_qwen_gives_the_text_of_its_answer() -> None:
    path = real_model("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf")
    card = tokenizer_from_gguf(Fields(read_gguf(path).metadata, path.name))
    made = Tokenizer.from_str(card.json)
    ids = [8420, 594, 264, 4285, 13027, 729, 429, 11367, 1378, 5109, 1447, 73594, 12669, 198, 750, 912]
    text = "Here's a simple Python function that adds two numbers:\n\n```python\ndef add"
    assert made.decode(ids) == text
    assert made.encode(text).ids == ids
    assert (card.add_bos, card.eos_ids) == (False, (151643, 151645, 151662, 151663, 151664))
