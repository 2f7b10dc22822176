from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.text.detokenizer import MOST_WINDOW_TOKENS, Detokenizer
from coordinator.text.tokenizer import TextTokenizer
from tests.unit.text.tokenizer_cards import byte_fallback_json, byte_level_json, text_tokenizer

BYTE_LEVEL = text_tokenizer(byte_level_json())
BYTE_FALLBACK = text_tokenizer(byte_fallback_json())
BOTH = pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK], ids=["byte_level", "byte_fallback"])
REPLACEMENT = "\ufffd"


def pieces_of(tokenizer: TextTokenizer, ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    detokenizer = Detokenizer.after(tokenizer, prompt)
    return [*(detokenizer.push(id_) for id_ in ids), detokenizer.flush()]


def byte_ids(data: bytes) -> list[int]:
    """The byte-level ids of any bytes, also of those that are no text."""
    of_byte = {BYTE_LEVEL_BYTES[id_]: id_ for id_ in BYTE_LEVEL_BYTES}
    return [of_byte[byte] for byte in data]


def _byte_of_each_id() -> dict[int, int]:
    """GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for letters from 256 on."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    letters = {chr(byte): byte for byte in own} | {chr(256 + index): byte for index, byte in enumerate(others)}
    return {index: letters[letter] for index, letter in enumerate(sorted(letters))}


BYTE_LEVEL_BYTES = _byte_of_each_id()


@BOTH
@given(text=st.text(st.characters(exclude_characters=REPLACEMENT, codec="utf-8")))
def test_the_pieces_are_the_text_and_never_half_a_character(tokenizer: TextTokenizer, text: str) -> None:
    prompt = tokenizer.encode("a", add_special=False)
    whole = tokenizer.encode("a" + text, add_special=False)
    if whole[: len(prompt)] != prompt:
        return
    pieces = pieces_of(tokenizer, whole[len(prompt) :], prompt)
    assert "".join(pieces) == text
    assert not any(REPLACEMENT in piece for piece in pieces)


def assert_decoded(data: bytes) -> None:
    """The text is that of decoding all at once, but for what was still no character at the end."""
    text, whole = "".join(pieces_of(BYTE_LEVEL, byte_ids(data))), data.decode("utf-8", "replace")
    assert text == whole[: len(text)]
    assert set(whole[len(text) :]) <= {REPLACEMENT}


@given(st.binary(max_size=200))
def test_bytes_that_are_no_text_come_out_as_decoding_them_at_once(data: bytes) -> None:
    assert_decoded(data)


@given(st.lists(st.sampled_from([b"\xe2", b"\x82", b"\xac", b"\xf0", b"\x9f", b"a"]), max_size=200))
def test_bytes_that_are_nearly_text(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert_decoded(data)


def test_a_character_is_shown_with_its_last_byte() -> None:
    assert pieces_of(BYTE_LEVEL, byte_ids("a€b😀".encode())) == ["a", "", "", "€", "b", "", "", "", "😀", ""]


def test_characters_in_fallback_bytes_are_shown_one_by_one() -> None:
    ids = [1 + byte for byte in "€日".encode()]
    assert pieces_of(BYTE_FALLBACK, ids) == ["", "", "€", "", "", "日", ""]


def test_an_unfinished_character_is_never_shown() -> None:
    assert pieces_of(BYTE_LEVEL, byte_ids(b"a\xe2\x82")) == ["a", "", "", ""]


def test_a_model_that_never_finishes_a_character_is_bounded_and_shown() -> None:
    detokenizer = Detokenizer.after(BYTE_LEVEL, ())
    shown = "".join(detokenizer.push(id_) for id_ in byte_ids(b"\x80" * 1000))
    assert 1000 - MOST_WINDOW_TOKENS < len(shown) < 1000
    assert shown == REPLACEMENT * len(shown)
    assert detokenizer.flush() == ""


def test_spaces_between_words_are_kept_and_the_first_goes_on_from_the_prompt() -> None:
    prompt = BYTE_FALLBACK.encode("he", add_special=False)
    word = BYTE_FALLBACK.encode("w", add_special=False)
    assert BYTE_FALLBACK.decode(word) == "w"
    assert pieces_of(BYTE_FALLBACK, [*word, *word], prompt) == [" w", " w", ""]


def test_control_tokens_have_no_text_even_within_a_character() -> None:
    (control,) = BYTE_LEVEL.encode("</s>", add_special=False)
    first, *rest = byte_ids("€".encode())
    assert pieces_of(BYTE_LEVEL, [control, first, control, *rest]) == ["", "", "", "", "€", ""]


@pytest.mark.parametrize("filler", ["", "h", "ho" * 20, "日" * 20, "😀€" * 9])
def test_a_character_that_the_prompt_began_is_shown_whole(filler: str) -> None:
    prompt, rest = byte_ids(filler.encode() + b"\xf0\x9f"), byte_ids(b"\x98\x80!")
    assert pieces_of(BYTE_LEVEL, rest, prompt) == ["", "😀", "!", ""]


def test_flushing_twice_shows_nothing_twice() -> None:
    detokenizer = Detokenizer.after(BYTE_LEVEL, ())
    shown = detokenizer.push(byte_ids(b"a")[0])
    assert (shown, detokenizer.flush(), detokenizer.flush()) == ("a", "", "")
