from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.text.tokenizer import TextTokenizer
from layerline.errors import ModelCorruptError, RequestError
from tests.unit.text.tokenizer_cards import byte_fallback_json, byte_level_json, card, text_tokenizer

BYTES = text_tokenizer(byte_level_json())
WITH_BOS = text_tokenizer(byte_level_json(), add_bos=True)
(BOS_ID,) = BYTES.encode("<s>", add_special=False)


@given(st.text())
def test_text_survives_byte_tokens(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text, add_special=True)) == text


def test_bos_is_there_once_whoever_wrote_it() -> None:
    hello = BYTES.encode("hello", add_special=False)
    assert WITH_BOS.encode("hello", add_special=True) == (BOS_ID, *hello)
    assert WITH_BOS.encode("<s>hello", add_special=True) == (BOS_ID, *hello)
    assert WITH_BOS.encode("", add_special=True) == (BOS_ID,)


def test_bos_only_where_it_is_asked_for_and_the_model_wants_it() -> None:
    hello = BYTES.encode("hello", add_special=False)
    assert WITH_BOS.encode("hello", add_special=False) == hello
    assert BYTES.encode("hello", add_special=True) == hello


def test_control_tokens_in_text_are_their_ids_and_are_not_shown() -> None:
    ids = BYTES.encode("<s>hell</s>", add_special=False)
    assert len(ids) == 3
    assert {ids[0], ids[2]} == BYTES.special_ids
    assert BYTES.decode(ids) == "hell"


def test_a_post_processor_in_the_json_adds_nothing() -> None:
    tokenizer = text_tokenizer(byte_fallback_json(), add_bos=True)
    (bos_id,) = tokenizer.encode("", add_special=True)
    assert tokenizer.encode("he", add_special=True).count(bos_id) == 1


def test_a_lone_surrogate_is_replaced() -> None:
    assert BYTES.decode(BYTES.encode("a\ud800b", add_special=False)) == "a?b"


@pytest.mark.parametrize(("ids", "bad", "at"), [((0, 5, -1), -1, 2), ((9000, 9001), 9000, 0), ((1 << 40,), 1 << 40, 0)])
def test_the_first_unknown_id_is_named(ids: tuple[int, ...], bad: int, at: int) -> None:
    with pytest.raises(RequestError, match=f"Token id {bad} at position {at} does not exist: .* 0 to 261"):
        BYTES.check_ids(ids)


def test_known_ids_pass() -> None:
    BYTES.check_ids(range(262))


def test_text_whose_ids_the_model_lacks_is_refused() -> None:
    narrow = TextTokenizer.from_card(card(byte_level_json()), vocabulary=4)
    with pytest.raises(RequestError, match="0 to 3"):
        narrow.encode("hello", add_special=False)


@pytest.mark.parametrize("json", ["", "{}", "[1", '{"model": {"type": "BPE"}}'])
def test_json_that_is_no_tokenizer(json: str) -> None:
    with pytest.raises(ModelCorruptError, match="cannot be read"):
        TextTokenizer.from_card(card(json), vocabulary=10)
