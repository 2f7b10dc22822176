"""What is said of files that cannot be read: each by its own cause, and at once."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from layerline.errors import ModelCorruptError, ModelUnreadableError
from layerline.models.gguf_file import GgufFile, read_gguf
from layerline.models.headers import ROPE_FACTORS, read_headers
from layerline.models.unreadable import open_model_file, unreadable, why_unreadable
from tests.fakes.model_files import TinyModel, write_folder, write_gguf


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "Let the user that runs this read it"),
        (errno.EPERM, "Let the user that runs this read it"),
        (errno.EIO, "Check the disk."),
        (errno.EMFILE, "limit of open files"),
        (errno.ELOOP, "circle"),
        (errno.EBADMSG, "Check the disk, and the rights"),
    ],
)
def test_a_failure_is_told_by_its_cause(number: int, remedy: str) -> None:
    error = unreadable(Path("/models/m.gguf"), OSError(number, os.strerror(number)))
    assert isinstance(error, ModelUnreadableError)
    assert error.message == f"/models/m.gguf cannot be read: {os.strerror(number)}."
    assert remedy in error.remedy


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_pipe_among_the_files_of_a_model_is_refused_at_once(tmp_path: Path, file: str) -> None:
    write_folder(tmp_path, TinyModel())
    (tmp_path / file).unlink()
    os.mkfifo(tmp_path / file)
    with pytest.raises(ModelCorruptError, match=f"{file} is not a regular file"):
        read_headers(tmp_path)


def test_a_pipe_in_the_place_of_a_model_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(ModelCorruptError, match="is not a regular file"):
        read_headers(tmp_path / "m.gguf")


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    with pytest.raises(ModelCorruptError, match=r"m\.gguf is empty"):
        read_headers(tmp_path / "m.gguf")


def test_a_file_that_shrinks_between_its_header_and_its_rotary_divisors_is_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ROPE_FACTORS["factors"]

    def read_and_shrink(path: Path) -> GgufFile:
        gguf = read_gguf(path)
        (factors,) = (tensor for tensor in gguf.tensors if tensor.name == name)
        os.truncate(path, factors.offset + 4)
        return gguf

    monkeypatch.setattr("layerline.models.headers.read_whole_gguf", read_and_shrink)
    path = write_gguf(tmp_path / "m.gguf", TinyModel(), tensors={name: np.ones(8, np.float32)})
    with pytest.raises(ModelCorruptError, match=rf"Tensor {name} of m\.gguf .* the file shrank"):
        read_headers(path)


def test_a_folder_in_the_place_of_a_file_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelCorruptError, match="is not a regular file"):
        open_model_file(tmp_path)


def test_why_a_folder_cannot_be_listed(tmp_path: Path) -> None:
    assert why_unreadable(tmp_path) == ""
    assert "does not exist: make it" in why_unreadable(tmp_path / "none")


@pytest.mark.skipif(not hasattr(os, "setresuid") or os.geteuid() != 0, reason="only root can become somebody else")
def test_another_users_file_is_told_with_the_right_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, TinyModel())
    path.chmod(0o600)
    os.chmod(tmp_path, 0o755)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    here = Path.cwd()
    os.fchdir(descriptor)  # since the folders above are closed to others, too
    os.seteuid(65534)
    try:
        with pytest.raises(ModelUnreadableError, match=r"Permission denied.*Let the user that runs this read it"):
            open_model_file(Path("m.gguf"))
    finally:
        os.seteuid(0)
        os.chdir(here)
        os.close(descriptor)
