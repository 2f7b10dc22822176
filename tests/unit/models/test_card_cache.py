"""Kept cards: made once, made again when a file changes or the kept one is damaged, and never too many."""

import os
from pathlib import Path

import pytest

from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.models.index import index_model
from tests.fakes.model_files import TinyModel, write_folder, write_gguf

MODEL = TinyModel()


class Cache:
    """A cache that tells how often something was indexed."""

    def __init__(self, folder: Path, kept_cards: int = 8) -> None:
        self.folder = folder
        self.cache = CardCache(folder, kept_cards)
        self.indexed = 0

    def card(self, path: Path, name: str = "tiny") -> ModelCard:
        return self.cache.card(path, name, lambda: index_model(path, name, self._progress))

    def _progress(self, done_bytes: int, total_bytes: int) -> None:
        self.indexed += done_bytes == total_bytes


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cards")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "model.gguf", MODEL)


def test_a_card_is_made_once_and_kept_over_starts(cache: Cache, model: Path) -> None:
    assert cache.cache.card_cached(model) is None
    assert cache.cache.digest_cached(model) == ""
    card = cache.card(model)
    again = Cache(cache.folder)
    assert again.card(model) == card
    assert again.cache.card_cached(model) == card
    assert again.cache.digest_cached(model) == card.digest
    assert (cache.indexed, again.indexed) == (1, 0)


def test_the_name_is_that_of_the_asker(cache: Cache, model: Path) -> None:
    cache.card(model, "one")
    assert cache.card(model, "other").name == "other"


def test_a_changed_file_is_indexed_anew(cache: Cache, model: Path) -> None:
    cache.card(model)
    os.utime(model, ns=(1, 1))
    cache.card(model)
    assert cache.indexed == 2


def test_any_changed_file_of_a_folder_is_indexed_anew(cache: Cache, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "folder", MODEL)
    before = cache.card(folder)
    (folder / "chat_template.jinja").write_text("another")
    after = cache.card(folder)
    assert (cache.indexed, after.tokenizer.chat_template) == (2, "another")
    assert before.digest != after.digest


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_damaged_card_is_made_again(cache: Cache, model: Path, damage: bytes | None) -> None:
    card = cache.card(model)
    kept = next(cache.folder.iterdir())
    spoiled = kept.read_bytes().replace(b"llama", b"lLama") if damage is None else damage
    kept.write_bytes(spoiled)
    assert cache.cache.card_cached(model) is None
    assert cache.card(model) == card
    assert cache.indexed == 2
    assert cache.cache.card_cached(model) == card


def test_the_oldest_cards_go(cache: Cache, tmp_path: Path) -> None:
    small = Cache(tmp_path / "few", kept_cards=2)
    models = [write_gguf(tmp_path / f"{index}.gguf", TinyModel(seed=index)) for index in range(3)]
    for age, model in enumerate(models):
        small.card(model)
        for kept in small.folder.iterdir():
            os.utime(kept, (kept.stat().st_mtime - 100, kept.stat().st_mtime - 100 * (age + 1)))
    assert len(list(small.folder.iterdir())) == 2
    assert small.cache.card_cached(models[0]) is None
    assert small.cache.card_cached(models[2]) is not None


def test_a_folder_that_cannot_be_written_costs_only_the_keeping(tmp_path: Path, model: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cards")
    assert cache.card(model) == cache.card(model)
    assert cache.indexed == 2


def test_a_full_disk_leaves_nothing_behind(cache: Cache, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("layerline.models.card_cache.os.replace", full)
    assert cache.card(model).name == "tiny"
    assert list(cache.folder.iterdir()) == []
