"""Foreign text, made safe to show: what files, peers and templates say, before a terminal, a log or an error has it.

An escape sequence in a tensor's name could repaint a terminal, a line end could forge a line of a log, and a letter
that turns the direction of writing could make one name look like another. The text that a model generates is not
shown through here: it is the answer, and goes to standard output as it is.
"""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TypeAlias

MAX_SHOWN_CHARACTERS = 4_000

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)  # as logging.Formatter has it


def printable(text: str, longest: int = MAX_SHOWN_CHARACTERS) -> str:
    r"""`text` with all that is not plainly visible as Python's escapes (\x1b, \u202e), in at most `longest` characters.

    Escaped are control and formatting characters, halves of surrogate pairs, line and paragraph separators, unassigned
    characters, and every space but the common one. What is printable already is returned as it is; of a longer text
    the middle is left out.
    """
    if len(text) <= longest and text.isprintable():
        return text
    if len(text) > 2 * longest:
        text = f"{text[:longest]}…{text[-longest:]}"
    shown = "".join(letter if letter.isprintable() else _escape(letter) for letter in text)
    if len(shown) <= longest:
        return shown
    end = (longest - 1) // 2
    return f"{shown[: longest - 1 - end]}…{shown[-end:]}"


def printable_lines(text: str) -> str:
    """`text` whose own line ends stay, each of its lines printable."""
    return "\n".join(map(printable, text.split("\n")))


def log_to_standard_error(level: int, form: str, times: str | None = None) -> None:
    """Sends this program's log to standard error, printable. `form` and `times` are as in `logging.Formatter`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_PrintableFormatter(form, times))
    logging.basicConfig(handlers=[handler], level=level)


class _PrintableFormatter(logging.Formatter):
    """One line an event; only a traceback has more."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the library's name
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802  # the library's name
        return printable_lines(super().formatException(ei))


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
