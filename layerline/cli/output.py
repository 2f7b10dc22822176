"""Standard output and standard error: the answer as text, tables, and lines about what is going on.

Text that goes to a terminal loses its control characters, since a model may make any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Iterable

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from layerline.answer import Piece, TokenLikelihood
from layerline.printable import printable_lines

MAX_WIDTH = 10_000
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
AFTER_THOUGHTS = "\n\n"

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def standard_error() -> Console:
    """A console on standard error; it takes text as it is."""
    return Console(file=sys.stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines on standard output, printable wherever it leads."""
    writer = AnswerWriter()
    for line in lines:
        writer.write(f"{printable_lines(line)}\n")


def print_table(table: Table) -> None:
    """Prints a table on standard output; only a terminal bounds its width."""
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        unbounded = console.options.update(max_width=MAX_WIDTH)
        console.width = Measurement.get(console, unbounded, table).maximum
    console.print(table)


class AnswerWriter:
    """Writes an answer to standard output as it is made, and keeps its text."""

    def __init__(self) -> None:
        self.text = ""
        self.likelihoods: list[TokenLikelihood] = []
        self._on_terminal = sys.stdout.isatty()
        self._thinks = False

    async def write_stream(self, pieces: AsyncIterator[Piece]) -> None:
        """Writes every piece when it comes, and a line end after the last, also if they end early."""
        try:
            async for piece in pieces:
                self.likelihoods += piece.likelihoods
                if piece.kind == "thinking":
                    self._think(piece.text)
                else:
                    self.write(piece.text)
        finally:
            if self.text and not self.text.endswith("\n"):
                self._put("\n")

    def write(self, text: str) -> None:
        """Writes `text` now."""
        if text and self._thinks:
            self._put(AFTER_THOUGHTS)
            self._thinks = False
        self.text += text
        self._put(_CONTROL.sub("�", text) if self._on_terminal else text)

    def _think(self, text: str) -> None:
        """Shows a thought dimmed, where somebody looks on; it is no part of the answer."""
        if self._on_terminal:
            self._thinks = True
            self._put(f"{DIM}{_CONTROL.sub('�', text)}{PLAIN}")

    def _put(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
