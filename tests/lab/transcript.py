"""What a process has said so far on one stream: bounded, and something one can wait on."""

from __future__ import annotations

import codecs
import os
import re
import threading

KEPT_CHARACTERS = 1 << 18
READ_BYTES = 1 << 16


class Transcript:
    """The last `KEPT_CHARACTERS` of a stream, filled by a thread of its own until the stream ends."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._text = ""
        self._ended = False

    def follow(self, descriptor: int) -> threading.Thread:
        """Starts reading `descriptor`; the thread closes it and ends with the stream."""
        reader = threading.Thread(target=self._read, args=(descriptor,), name="transcript", daemon=True)
        reader.start()
        return reader

    @property
    def text(self) -> str:
        """What was said, the oldest part left out if it is too much."""
        with self._changed:
            return self._text

    @property
    def ended(self) -> bool:
        """Whether the stream has ended, so that nothing more will come."""
        with self._changed:
            return self._ended

    def search(self, pattern: str) -> re.Match[str] | None:
        """The first match of `pattern`, where ^ and $ stand for ends of lines."""
        return re.search(pattern, self.text, re.MULTILINE)

    def _read(self, descriptor: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            while block := os.read(descriptor, READ_BYTES):
                self._add(decoder.decode(block))
        finally:
            os.close(descriptor)
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _add(self, text: str) -> None:
        with self._changed:
            self._text = (self._text + text)[-KEPT_CHARACTERS:]
            self._changed.notify_all()
