"""A models folder: what it holds, and names that must not lead out of it."""

from pathlib import Path

import pytest

from layerline.errors import ModelNotFoundError
from layerline.models.folder import find_model, list_models
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


def test_models_at_the_top_and_one_level_down_are_listed(folder: Path) -> None:
    sizes = {name: size_bytes for name, _, size_bytes in list_models(folder)}
    assert sorted(sizes) == ["author/other.gguf", "author/qwen-tiny", "linked.gguf", "llama-tiny", "smol.gguf"]
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
    *("../outside.gguf", "../outside", "author/../smol.gguf", "a/b/deep.gguf", "..", ".", "", "/", "./smol"),
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
