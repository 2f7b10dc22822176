"""Text token by token is what the library makes of all tokens at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from coordinator.text.detokenizer import Detokenizer
from coordinator.text.token_text import OversizeTokenError, TokenText, UnknownDecoderError, steps_of
from tests.unit.text.tokenizer_cards import byte_fallback_json, byte_level_json, changed, tokens_of

JSON = {"byte_level": byte_level_json(), "byte_fallback": byte_fallback_json()}
LIBRARY = {name: Tokenizer.from_str(json) for name, json in JSON.items()}
TOKENS = {name: tokens_of(json) for name, json in JSON.items()}
REPLACEMENT = "\ufffd"


def ids_of(name: str, text: str) -> list[int]:
    ids: list[int] = LIBRARY[name].encode(text, add_special_tokens=False).ids
    return ids


def pieces_of(name: str, ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    return [*map(Detokenizer.after(TOKENS[name], prompt).push, ids)]


def byte_ids(data: bytes) -> list[int]:
    """The byte-level ids of any bytes, also of those that are no text."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    letters = {chr(byte): byte for byte in own} | {chr(256 + index): byte for index, byte in enumerate(others)}
    ids = {letters[letter]: index for index, letter in enumerate(sorted(letters))}
    return [ids[byte] for byte in data]


@pytest.mark.parametrize("name", JSON)
@given(text=st.text(st.characters(exclude_characters=REPLACEMENT, codec="utf-8")))
def test_the_pieces_are_the_text_and_never_half_a_character(name: str, text: str) -> None:
    prompt, whole = ids_of(name, "a"), ids_of(name, "a" + text)
    if whole[: len(prompt)] != prompt:
        return
    pieces = pieces_of(name, whole[len(prompt) :], prompt)
    assert "".join(pieces) == (text.replace("▁", " ") if name == "byte_fallback" else text)  # its mark of a space
    assert not any(REPLACEMENT in piece for piece in pieces)


@given(st.lists(st.integers(0, 261), max_size=200))
def test_any_ids_are_decoded_as_the_library_does(ids: list[int]) -> None:
    text, whole = "".join(pieces_of("byte_level", ids)), LIBRARY["byte_level"].decode(ids)
    assert text == whole[: len(text)]
    assert set(whole[len(text) :]) <= {REPLACEMENT}  # what is no character yet is not shown


def test_a_character_is_shown_with_its_last_byte() -> None:
    assert pieces_of("byte_level", byte_ids("a€b😀".encode())) == ["a", "", "", "€", "b", "", "", "", "😀"]


def test_characters_in_fallback_bytes_are_shown_one_by_one() -> None:
    ids = [1 + byte for byte in "€日".encode()]
    assert pieces_of("byte_fallback", ids) == ["", "", "€", "", "", "日"]


def test_an_unfinished_character_is_never_shown() -> None:
    assert pieces_of("byte_level", byte_ids(b"a\xe2\x82")) == ["a", "", ""]


def test_a_model_that_never_makes_a_character_is_shown_as_it_goes() -> None:
    assert pieces_of("byte_level", byte_ids(b"\x80" * 1000)) == [REPLACEMENT] * 1000


def test_spaces_between_words_are_kept_and_the_first_goes_on_from_the_prompt() -> None:
    prompt, word = ids_of("byte_fallback", "he"), ids_of("byte_fallback", "w")
    assert LIBRARY["byte_fallback"].decode(word) == "w"
    assert pieces_of("byte_fallback", [*word, *word], prompt) == [" w", " w"]
    assert pieces_of("byte_fallback", [*word, *word]) == ["w", " w"]


def test_control_tokens_have_no_text_even_within_a_character() -> None:
    (control,) = ids_of("byte_level", "</s>")
    first, *rest = byte_ids("€".encode())
    assert pieces_of("byte_level", [control, first, control, *rest]) == ["", "", "", "", "€"]


@pytest.mark.parametrize("id_", [-1, 262, 1 << 40])
def test_ids_that_there_are_not_have_no_text(id_: int) -> None:
    assert TOKENS["byte_level"].of(id_) == b""


@pytest.mark.parametrize("filler", ["", "h", "ho" * 20, "日" * 20, "😀€" * 9])
def test_a_character_that_the_prompt_began_is_shown_whole(filler: str) -> None:
    prompt, rest = byte_ids(filler.encode() + b"\xf0\x9f"), byte_ids(b"\x98\x80!")
    assert pieces_of("byte_level", rest, prompt) == ["", "😀", "!"]


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        decoders.Metaspace(),
        decoders.Metaspace(prepend_scheme="never"),
        decoders.Sequence([decoders.ByteLevel()]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        decoders.Sequence([decoders.Replace("▁", "--"), decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
    ],
    ids=["none", "metaspace", "metaspace without a first space", "byte level", "gemma's", "several spaces"],
)
def test_every_known_decoder_is_that_of_the_library(decoder: decoders.Decoder | None) -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"▁a": 0, "b▁": 1, "<0xC3>": 2, "<0xA4>": 3, "Ġc": 4, "▁": 5}, merges=[]))
    if decoder is not None:
        tokenizer.decoder = decoder
    tokens = TokenText.of_tokenizer(tokenizer, 6)
    for ids in ([0, 1, 2, 3, 4], [0, 5, 4], [5, 5, 0], [4]):
        assert "".join(map(Detokenizer.after(tokens, ()).push, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize(
    "decoder",
    [
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "ab"}}]},
        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
        {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1}]},
    ],
)
def test_decoders_that_are_not_known(decoder: dict[str, object]) -> None:
    with pytest.raises(UnknownDecoderError):
        steps_of(decoder)


def test_a_decoder_that_makes_much_of_little_is_refused() -> None:
    decoder = {"type": "Replace", "pattern": {"String": "h"}, "content": "h" * 100_000}
    with pytest.raises(OversizeTokenError):
        tokens_of(changed(byte_level_json(), decoder=decoder))
