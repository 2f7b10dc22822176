"""What files and peers say never reaches a terminal, a log or an error as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.errors import ERRORS, ModelCorruptError, OverloadedError, error_from_code
from layerline.printable import MAX_SHOWN_CHARACTERS, log_to_standard_error, printable

HOSTILE = "\x1b[2J\x07\r\n\x9b31m\u2028\u2029\u202e\u2066\u200b\ufeff\ud800\U000e0041\x00\x7f\xa0"


@contextmanager
def own_log(form: str) -> Iterator[logging.Logger]:
    """The root logger of a program that sends its log to standard error."""
    root = logging.getLogger()
    kept, level, root.handlers = root.handlers, root.level, []
    try:
        log_to_standard_error(logging.INFO, form)
        yield root
    finally:
        root.handlers = kept
        root.setLevel(level)


def test_escapes_are_those_of_python() -> None:
    assert printable("a\x1b[31mb\u202e\n\ud800") == r"a\x1b[31mb\u202e\n\ud800"
    assert printable("Modèle 日本 😀 \\x1b 'ok'") == "Modèle 日本 😀 \\x1b 'ok'"


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_it_was_it_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown


@pytest.mark.parametrize("text", ["x" * 5_000, "\x1b" * 5_000, "x" * (MAX_SHOWN_CHARACTERS - 1) + "\x1b\x1b"])
def test_of_long_text_the_middle_is_left_out(text: str) -> None:
    shown = printable(f"begin {text} end")
    assert len(shown) == MAX_SHOWN_CHARACTERS
    assert (shown[:6], shown[2000], shown[-4:]) == ("begin ", "…", " end")


@pytest.mark.parametrize("code", ERRORS)
def test_no_error_has_anything_else_in_it(code: str) -> None:
    error = error_from_code(code, f"Tensor {HOSTILE} is odd.", node=f"a{HOSTILE}", remedy=f"Remove {HOSTILE}.")
    assert all(text.isprintable() for text in (str(error), error.message, error.node, error.remedy, *error.args))
    assert r"\x1b[2J\x07\r\n" in error.message


def test_an_errors_own_words_are_as_they_were() -> None:
    error = OverloadedError("Too much.", node="a", remedy="Wait.", retry_after_s=2)
    assert (str(error), error.node, error.retry_after_s) == ("Too much. Wait.", "a", 2)


def test_the_log_has_one_printable_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    with own_log("%(levelname)s %(message)s") as log:
        log.info("Held by %s.", HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert lines[0].startswith(r"INFO Held by \x1b[2J\x07\r\n")


def test_a_traceback_keeps_its_lines_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with own_log("%(message)s") as log:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("Failed.")
    lines = capsys.readouterr().err.split("\n")
    assert lines[:2] == ["Failed.", "Traceback (most recent call last):"]
    assert all(line.isprintable() for line in lines)


def test_a_tensors_name_in_an_error_is_escaped() -> None:
    assert "\x1b" not in str(ModelCorruptError("Tensor \x1b[31m is odd."))
