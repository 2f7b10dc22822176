"""A GGUF model in parts is the same model as in one file, by one name; a part that is missing or wrong is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from layerline.errors import LayerlineError, ModelCorruptError, ModelUnsupportedError
from layerline.models.card import ModelCard
from layerline.models.card_cache import CardCache
from layerline.models.folder import find_model, list_models
from layerline.models.index import index_model
from layerline.models.names import listed_name
from layerline.models.part_names import GgufPart, part_paths, whole_name
from layerline.models.read import TensorReader
from tests.fakes.model_files import TinyModel, write_gguf
from tests.fakes.tiny_models import StoredModel

MODEL = TinyModel()
PART_TENSORS = 7


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The first of the parts, which are all there is in their folder."""
    return write_gguf(tmp_path / "parts" / "m.gguf", MODEL, part_tensors=PART_TENSORS)


def indexed(path: Path) -> ModelCard:
    return index_model(path, "m", lambda _done, _total: None)


def test_it_is_the_model_of_one_file(first: Path, tmp_path: Path) -> None:
    whole = indexed(write_gguf(tmp_path / "m.gguf", MODEL))
    card = indexed(first)
    paths = part_paths(first)
    assert len(paths) > 2
    assert card.digest == whole.digest
    assert card.size_bytes == sum(path.stat().st_size for path in paths)
    with TensorReader(first, card) as parts, TensorReader(tmp_path / "m.gguf", whole) as one:
        for own, other in zip(card.tensors, whole.tensors, strict=True):
            for (_, numbers), (_, expected) in zip(parts.blocks(own, 16), one.blocks(other, 16), strict=True):
                assert np.array_equal(numbers, expected)
    prompt = [5, 9, 33, 7]
    answers = [StoredModel.at(path).chain(2).greedy(prompt, 6) for path in (first, tmp_path / "m.gguf")]
    assert answers[0] == answers[1]


def test_it_is_listed_once_by_the_name_of_the_whole(first: Path) -> None:
    folder = first.parent
    assert list_models(folder) == (("m.gguf", first, sum(path.stat().st_size for path in part_paths(first))),)
    for name in ("m", "m.gguf", first.name, part_paths(first)[-1].name):
        assert find_model(folder, name) == first
    assert listed_name(str(first), ["m.gguf"]) == "m.gguf"


def test_names() -> None:
    assert GgufPart.of("a-00002-of-00003.gguf") == GgufPart("a", 2, 3)
    assert [
        GgufPart.of(f"a-{name}.gguf") for name in ("00000-of-00003", "00004-of-00003", "1-of-3", "00001-of-99999")
    ] == [None] * 4
    assert whole_name("x/a-00001-of-00003.gguf") == "x/a.gguf"
    assert whole_name("a-00001-of-00003") == "a-00001-of-00003"


def test_a_kept_card_is_of_all_parts(first: Path, tmp_path: Path) -> None:
    cache = CardCache(tmp_path / "cards")
    cache.card(first, "m", lambda: indexed(first))
    assert cache.card_cached(first) is not None
    last = part_paths(first)[-1]
    last.write_bytes(last.read_bytes() + b"more")
    assert cache.card_cached(first) is None


def of_another_model(first: Path) -> None:
    other = write_gguf(first.parent / "other.gguf", TinyModel(seed=1, hidden=32), part_tensors=PART_TENSORS)
    shutil.copy(part_paths(other)[1], part_paths(first)[1])


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda first: part_paths(first)[1].unlink(), ModelCorruptError, "Part m-00002-of-.* is missing"),
        (lambda first: part_paths(first)[1].write_bytes(b"GGUF"), ModelCorruptError, "m-00002-of-"),
        (lambda first: shutil.copy(part_paths(first)[2], part_paths(first)[1]), ModelCorruptError, "another part"),
        (lambda first: shutil.copy(part_paths(first)[0], part_paths(first)[1]), ModelCorruptError, "another part"),
        (of_another_model, ModelCorruptError, "shape|hidden"),
    ],
)
def test_a_wrong_part_is_named(
    first: Path, damage: Callable[[Path], None], error: type[LayerlineError], words: str
) -> None:
    damage(first)
    with pytest.raises(error, match=words):
        indexed(first)


def test_a_file_of_the_name_of_the_whole_comes_before_parts(first: Path) -> None:
    whole = write_gguf(first.parent / "m.gguf", TinyModel(seed=1))
    assert find_model(first.parent, "m.gguf") == whole
    assert [path for _, path, _ in list_models(first.parent)] == [whole]


def test_parts_without_the_first_are_a_model_that_cannot_be_read(first: Path) -> None:
    later = part_paths(first)[1:]
    first.unlink()
    assert [(name, path) for name, path, _ in list_models(first.parent)] == [("m.gguf", later[0])]
    with pytest.raises(ModelCorruptError, match=f"Part {first.name} of the model m.gguf is missing"):
        indexed(later[0])


def test_a_part_that_is_not_called_one_is_refused(first: Path) -> None:
    renamed = shutil.copy(first, first.with_name("renamed.gguf"))
    with pytest.raises(ModelUnsupportedError, match=r"one of . parts of a model, but is not called so"):
        indexed(Path(renamed))
    with pytest.raises(ModelUnsupportedError, match="later part"):
        indexed(part_paths(first)[1])
