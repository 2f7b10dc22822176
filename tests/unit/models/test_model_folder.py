"""A models folder: what it holds, and names that must not lead out of it."""

import os
from pathlib import Path

import pytest

from layerline.errors import ModelNotFoundError
from layerline.models.folder import find_model, list_models
from layerline.models.index import index_model
from layerline.models.read import TensorReader
from tests.fakes.model_files import TinyModel, write_folder, write_gguf

MODEL = TinyModel()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_gguf(folder / "smol.gguf", MODEL)
    write_gguf(folder / "author" / "other.gguf", MODEL)
    write_folder(folder / "llama-tiny", MODEL, shards=2)
    write_folder(folder / "author" / "qwen-tiny", MODEL)
    write_gguf(folder / "a" / "b" / "deep.gguf", MODEL)
    write_gguf(folder / ".hidden.gguf", MODEL)
    (folder / "notes.txt").write_text("no model")
    (folder / "empty").mkdir()
    write_gguf(tmp_path / "outside.gguf", MODEL)
    (folder / "linked.gguf").symlink_to(tmp_path / "outside.gguf")
    (folder / "dangling.gguf").symlink_to(tmp_path / "nowhere")
    return folder


def names(folder: Path) -> list[str]:
    return [name for name, _, _ in list_models(folder)]


def test_models_are_listed_by_their_place_in_the_folder(folder: Path) -> None:
    sizes = {name: size_bytes for name, _, size_bytes in list_models(folder)}
    assert sorted(sizes) == [
        "a/b/deep.gguf",
        "author/other.gguf",
        "author/qwen-tiny",
        "linked.gguf",
        "llama-tiny",
        "smol.gguf",
    ]
    assert sizes["smol.gguf"] == (folder / "smol.gguf").stat().st_size
    assert sizes["llama-tiny"] == sum(file.stat().st_size for file in (folder / "llama-tiny").glob("*.safetensors"))


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert list_models(tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("smol.gguf", "smol.gguf"),
        ("smol", "smol.gguf"),
        ("llama-tiny", "llama-tiny"),
        ("author/other", "author/other.gguf"),
        ("author/qwen-tiny", "author/qwen-tiny"),
        ("linked", "linked.gguf"),
    ],
)
def test_models_are_found_by_name(folder: Path, name: str, path: str) -> None:
    assert find_model(folder, name) == folder / path


STRANGE_NAMES = (
    *("../outside.gguf", "../outside", "author/../smol.gguf", "a/b/deeper.gguf", "..", ".", "", "/", "./smol"),
    *("smol.gguf\0", "x" * 999, "author\\other.gguf", ".hidden", "empty", "notes.txt", "author"),
)


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_names_that_are_none_of_the_folder_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="There is no model"):
        find_model(folder, name)


def test_an_absolute_path_is_no_name(folder: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="There is no model"):
        find_model(folder, str(folder / "smol.gguf"))


def test_the_error_names_the_folder_and_the_closest_model_first(folder: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        find_model(folder, "smoll.gguf")
    assert str(folder) in caught.value.message
    assert caught.value.remedy.startswith("It holds smol.gguf, ")
    assert "author/qwen-tiny" in caught.value.remedy


def test_the_error_of_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="holds no models; put a GGUF file there"):
        find_model(tmp_path, "smol")


def test_what_lies_too_deep_is_not_looked_for_and_circles_of_links_end(tmp_path: Path) -> None:
    write_gguf(tmp_path / "1" / "2" / "3" / "found.gguf", MODEL)
    write_gguf(tmp_path / "1" / "2" / "3" / "4" / "5" / "deep.gguf", MODEL)
    (tmp_path / "1" / "2" / "round").symlink_to(tmp_path)
    assert names(tmp_path) == ["1/2/3/found.gguf"]


def test_what_only_looks_like_a_model_is_not_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder.gguf").mkdir()
    write_folder(tmp_path / "without-config", MODEL)
    (tmp_path / "without-config" / "config.json").unlink()
    os.mkfifo(tmp_path / "without-config" / "config.json")
    write_folder(tmp_path / "only-dots", MODEL)
    (tmp_path / "only-dots" / "model.safetensors").rename(tmp_path / "only-dots" / "._model.safetensors")
    (tmp_path / "._smol.gguf").write_bytes(b"\0\5\26\7")
    assert names(tmp_path) == []


def hub_snapshot(cache: Path, repository: str, revision: str, *, current: bool = True) -> Path:
    """A snapshot as the hub's library lays it: links to blobs without a suffix."""
    home = cache / repository
    snapshot, blobs = home / "snapshots" / revision, home / "blobs"
    write_folder(home / "written", MODEL)
    snapshot.mkdir(parents=True)
    blobs.mkdir(exist_ok=True)
    for number, file in enumerate(sorted((home / "written").iterdir())):
        blob = blobs / f"{revision}{number:060x}"
        file.rename(blob)
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", blob.name))
    (home / "written").rmdir()
    if current:
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text(revision)
    return snapshot


def test_models_in_the_cache_of_the_hub_have_the_names_they_have_there(tmp_path: Path) -> None:
    snapshot = hub_snapshot(tmp_path / "hub", "models--org--Tiny--1B", "0123456789abcdef")
    old = hub_snapshot(tmp_path / "hub", "models--org--Tiny--1B", "fedcba9876543210", current=False)
    assert names(tmp_path / "hub") == ["org/Tiny--1B", "org/Tiny--1B@fedcba98"]
    assert names(tmp_path) == ["org/Tiny--1B", "org/Tiny--1B@fedcba98"]
    assert find_model(tmp_path / "hub", "org/Tiny--1B@fedcba98") == old
    assert names(snapshot) == ["org/Tiny--1B"]
    card = index_model(find_model(snapshot, "org/Tiny--1B"), "org/Tiny--1B", lambda done, total: None)
    with TensorReader(snapshot, card) as reader:
        for tensor in card.tensors:
            assert sum(len(rows) for _, rows in reader.blocks(tensor, 8)) == tensor.shape[0]


def test_gguf_files_in_the_cache_of_the_hub_are_named_below_their_repository(tmp_path: Path) -> None:
    home = tmp_path / "models--org--tiny-GGUF"
    write_gguf(home / "blobs" / "00ff", MODEL)
    snapshot = home / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tiny.Q8_0.gguf").symlink_to(Path("..", "..", "blobs", "00ff"))
    assert names(tmp_path) == ["org/tiny-GGUF/tiny.Q8_0.gguf"]
    path = find_model(tmp_path, "org/tiny-GGUF/tiny.Q8_0")
    assert index_model(path, "tiny", lambda done, total: None).container == "gguf"


def test_a_models_folder_that_is_a_model_lists_itself(tmp_path: Path) -> None:
    write_folder(tmp_path / "tiny", MODEL)
    assert names(tmp_path / "tiny") == ["tiny"]
    assert find_model(tmp_path / "tiny", "tiny") == tmp_path / "tiny"


def test_names_are_listed_and_found_in_composed_form(tmp_path: Path) -> None:
    composed, decomposed = "mod\u00e8le.gguf", "mode\u0300le.gguf"
    write_gguf(tmp_path / decomposed, MODEL)
    assert names(tmp_path) == [composed]
    assert find_model(tmp_path, composed) == find_model(tmp_path, decomposed) == tmp_path / decomposed


def test_a_folder_that_cannot_be_read_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        find_model(tmp_path / "none", "smol")
    with pytest.raises(ModelNotFoundError, match="file"):
        find_model(tmp_path / "file", "smol")
