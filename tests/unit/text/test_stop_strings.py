from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.text.stop_strings import MAX_STOP_CHARACTERS, StopStrings
from layerline.errors import RequestError

LETTERS = st.text("ab", max_size=6)


def stream(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    strings = StopStrings(stops)
    shown = [strings.push(piece) for piece in pieces]
    return [*shown, strings.flush()], strings.matched


def whole(stops: list[str], text: str) -> tuple[str, str | None]:
    """The simple reference: read letter by letter until the text so far ends with a stop string."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(st.lists(LETTERS.filter(bool), max_size=4), st.lists(LETTERS, max_size=12))
def test_any_cutting_gives_what_the_whole_text_gives(stops: list[str], pieces: list[str]) -> None:
    shown, matched = stream(stops, pieces)
    assert ("".join(shown), matched) == whole(stops, "".join(pieces))


@given(st.lists(LETTERS.filter(bool), min_size=1, max_size=3), LETTERS)
def test_no_more_is_held_than_could_begin_a_stop_string(stops: list[str], text: str) -> None:
    strings = StopStrings(stops)
    held = text[len(strings.push(text)) :]
    if strings.matched is None:
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_a_stop_string_over_three_pieces() -> None:
    assert stream(["\n\nUser:"], ["Yes.\n", "\nUs", "er: no"]) == (["Yes.", "", "", ""], "\n\nUser:")


def test_text_that_only_looked_like_the_beginning_is_shown() -> None:
    assert stream(["STOP"], ["a ST", "AY"]) == (["a ", "STAY", ""], None)
    assert stream(["STOP"], ["a ST"]) == (["a ", "ST"], None)


def test_nothing_is_shown_after_the_end() -> None:
    strings = StopStrings(["."])
    assert [strings.push(piece) for piece in ("one. two", "three")] == ["one", ""]
    assert (strings.flush(), strings.matched) == ("", ".")


def test_without_stop_strings_all_passes() -> None:
    assert stream([], ["a", "b"]) == (["a", "b", ""], None)


@pytest.mark.parametrize("stop", ["", "x" * (MAX_STOP_CHARACTERS + 1)])
def test_a_stop_string_of_no_or_too_much_length(stop: str) -> None:
    with pytest.raises(RequestError, match="1 to 1024 characters"):
        StopStrings([stop])
