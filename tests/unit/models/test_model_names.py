"""Which listed name a REF means: listed names first, then what a path of this machine ends in."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.models.names import listed_name, same_name

LISTED = ("smol.gguf", "org/m.gguf", "m.gguf", "org/folder", "caf\u00e9.gguf")


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("smol.gguf", "smol.gguf"),
        ("smol", "smol.gguf"),
        ("org/m", "org/m.gguf"),
        ("m.gguf", "m.gguf"),
        ("/home/me/models/org/m.gguf", "org/m.gguf"),
        ("/home/me/models/m.gguf", "m.gguf"),
        ("../models/org/folder/", "org/folder"),
        ("./smol.gguf", "smol.gguf"),
        ("cafe\u0301", "caf\u00e9.gguf"),
        ("/models/cafe\u0301.gguf", "caf\u00e9.gguf"),
    ],
)
def test_a_reference_means(reference: str, name: str) -> None:
    assert listed_name(reference, LISTED) == name


@pytest.mark.parametrize(
    "reference", ["", ".", "..", "/", "other", "folder", "rg/m.gguf", "smol.gguf/x", "smol\0", "SMOL"]
)
def test_a_reference_means_nothing(reference: str) -> None:
    assert listed_name(reference, LISTED) is None


def test_a_model_is_meant_from_inside_its_folder_and_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models" / "org" / "folder").mkdir(parents=True)
    (tmp_path / "models" / "org" / "m.gguf").touch()
    (tmp_path / "favourite").symlink_to(tmp_path / "models" / "org" / "m.gguf")
    assert listed_name(str(tmp_path / "favourite"), ["org/m.gguf"]) == "org/m.gguf"
    monkeypatch.chdir(tmp_path / "models" / "org")
    assert listed_name("m.gguf", ["org/m.gguf"]) == "org/m.gguf"
    monkeypatch.chdir(tmp_path / "models" / "org" / "folder")
    assert listed_name(".", LISTED) == "org/folder"


def test_a_listed_name_comes_before_a_path_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "smol").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "org")
    assert listed_name("smol", ["org/smol", "smol.gguf"]) == "smol.gguf"
    assert listed_name("smol", ["org/smol"]) == "org/smol"


def test_two_suffixes_of_one_model_are_one() -> None:
    assert same_name("org/m.gguf", "org/m")
    assert same_name("org/m", "/x/org/m.gguf")
    assert not same_name("org/m.gguf", "m.gguf")
