"""A model card from another machine is what it says, or it is refused: whatever is in place of any of its fields."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.models.card import ModelCard
from layerline.models.index import index_model
from tests.fakes.model_files import TinyModel, write_gguf

Path_ = tuple[str | int, ...]
OPTIONAL: tuple[Path_, ...] = (("tokenizer", "bos_id"), ("tokenizer", "chat_template"))
JUNK: tuple[object, ...] = (
    None, True, 5, -1, 6.5, 2**63, float("nan"), float("inf"), "x", "", "\x1b[2J", b"\xff", [], [1], {}, {"a": 1},
)  # fmt: skip


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    path = write_gguf(tmp_path_factory.mktemp("card") / "tiny.gguf", TinyModel(layers=2))
    return index_model(path, "tiny.gguf", lambda _done, _total: None)


def plain(card: ModelCard) -> dict[str, Any]:
    fields: dict[str, Any] = msgpack.unpackb(card.to_bytes())
    return fields


def places(value: object, place: Path_ = ()) -> list[Path_]:
    """Where something could stand in for something else; of lists the first two items."""
    below: list[Path_] = []
    if isinstance(value, dict):
        below = [found for key, item in value.items() for found in places(item, (*place, key))]
    elif isinstance(value, list):
        below = [found for number, item in enumerate(value[:2]) for found in places(item, (*place, number))]
    return [place, *below]


def put(value: Any, place: Path_, junk: object) -> Any:
    if not place:
        return junk
    key, *rest = place
    changed: Any = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = put(value[key], tuple(rest), junk)
    return changed


def same_types(one: object, other: object) -> bool:
    """Whether the two are of one shape, type by type."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(same_types(item, other.get(key)) for key, item in one.items())
    return type(one) is type(other) or {type(one), type(other)} <= {int, float}


def test_a_card_survives_the_way_through_bytes(card: ModelCard) -> None:
    assert ModelCard.from_bytes(card.to_bytes()) == card


@pytest.mark.parametrize(
    ("place", "junk", "reason"),
    [
        (("digest",), 5, "digest is not a text"),
        (("digest",), "", "digest is not a short printable name"),
        (("stored", 0, "offset"), -1, r"stored\[0\]: offset or nbytes is out of range"),
        (("stored", 0, "shape"), [2**60], r"stored\[0\]: shape is out of range"),
        (("tensors", 0, "ranges"), [[10_000, 0, 1]], "a range of rows is of no stored tensor"),
        (("tensors", 0, "ranges"), [[0, 0]], "a range of rows is of no stored tensor"),
        (("spec", "kinds", 0, "mixer", "heads"), 6.5, r"spec.kinds\[0\].mixer.heads is not a whole number"),
        (("tokenizer", "eos_ids"), [6.5], r"tokenizer.eos_ids\[0\] is not a whole number"),
        (("size_bytes",), 2**63, "size_bytes is out of range"),
    ],
)
def test_a_field_that_cannot_be_is_named(card: ModelCard, place: Path_, junk: object, reason: str) -> None:
    with pytest.raises(ValueError, match=f"not a model card: .*{reason}"):
        ModelCard.from_bytes(msgpack.packb(put(plain(card), place, junk)))


@given(data=st.data())
def test_whatever_stands_in_for_a_field_it_is_a_card_or_refused(card: ModelCard, data: st.DataObject) -> None:
    good = plain(card)
    place = data.draw(st.sampled_from(places(good)))
    changed = put(good, place, data.draw(st.sampled_from(JUNK)))
    try:
        made = ModelCard.from_bytes(msgpack.packb(changed))
    except ValueError:
        return
    assert place in OPTIONAL or same_types(plain(made), good)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", msgpack.packb([1]), b"\x81" * 2_000, b"\xdd\xff\xff\xff\xff"])
def test_bytes_that_are_no_table_are_no_card(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a model card"):
        ModelCard.from_bytes(data)


@pytest.mark.parametrize("ranges", [[[]] * 5_000_000, [[0] * 5_000_000]], ids=["many lists", "one long list"])
def test_a_card_that_would_grow_in_memory_is_refused_before_that(card: ModelCard, ranges: list[Any]) -> None:
    forged = put(plain(card), ("tensors", 0, "ranges"), ranges)
    with pytest.raises(ValueError, match="too many parts"):
        ModelCard.from_bytes(msgpack.packb(forged))
