"""Text that comes piece by piece, for generators that read it: each `yield` waits until there is more, or the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import TypeVar

from coordinator.text.answer_forms.strict_json import whole

Read = TypeVar("Read")
Waiting = Generator[None, None, Read]

SPACE = " \t\r\n"


class MalformedError(Exception):
    """What was begun is no call after all."""


class Feed:
    """What has come and was not read; `ended` once no more comes. `taken` has what was read since `mark`."""

    def __init__(self) -> None:
        self.ended = False
        self._text = ""
        self._taken = ""

    def put(self, text: str) -> None:
        """More text has come."""
        self._text += text

    def mark(self) -> None:
        """From here on what is read is remembered."""
        self._taken = ""

    def give_back(self) -> None:
        """What was read since `mark` is to be read again."""
        self._text, self._taken = self._taken + self._text, ""

    def take(self, length: int) -> str:
        """Reads so many characters that have come."""
        text, self._text = self._text[:length], self._text[length:]
        self._taken += text
        return text

    def peek(self) -> Waiting[str]:
        """The next character, "" at the end; does not read it."""
        while not self._text and not self.ended:
            yield
        return self._text[:1]

    def begins_with(self, *words: str) -> Waiting[str]:
        """The word that comes next, of those; "" for none. Does not read it."""
        while True:
            found = max((word for word in words if self._text.startswith(word)), key=len, default="")
            if found or self.ended or not any(word.startswith(self._text) for word in words):
                return found
            yield

    def skip_space(self) -> Waiting[None]:
        """Reads white space."""
        while (character := (yield from self.peek())) and character in SPACE:
            self.take(1)

    def expect(self, word: str) -> Waiting[None]:
        """Reads `word`; MalformedError if something else comes."""
        if not (yield from self.begins_with(word)):
            raise MalformedError(f"{word!r} is missing")
        self.take(len(word))

    def until(self, *words: str, tell: Callable[[str], None] | None = None) -> Waiting[tuple[str, str]]:
        """Reads up to and with the first of `words`: what comes before it, and the word; "" for the end of the text.

        With `tell` what comes before is told as it is certain, and not returned.
        """
        before = ""
        while True:
            places = [(place, word) for word in words if (place := self._text.find(word)) >= 0]
            if places:
                place, word = min(places, key=lambda each: (each[0], -len(each[1])))
                before += self._passed(place, tell)
                self.take(len(word))
                return before, word
            held = 0 if self.ended else max(_beginning_at_end(self._text, word) for word in words)
            before += self._passed(len(self._text) - held, tell)
            if self.ended:
                return before, ""
            yield

    def json_string(self) -> Waiting[str]:
        """Reads a string of JSON; MalformedError if none comes."""
        yield from self.expect('"')
        raw = '"'
        while True:
            before, word = yield from self.until("\\", '"')
            raw += before + word
            if word == "\\":
                yield from self.peek()
                raw += self.take(1)
            elif word == '"':
                return _loaded(raw)
            else:
                raise MalformedError("a string that does not end")

    def json_value(self, tell: Callable[[str], None]) -> Waiting[None]:
        """Reads an object or a list of JSON and tells its text as it comes; MalformedError if none comes.

        Only how it is nested is looked at: what a model writes wrong inside comes out as it is.
        """
        if (yield from self.peek()) not in ("{", "["):
            raise MalformedError("no object")
        depth, quoted = 0, False
        while True:
            words = ("\\", '"') if quoted else ('"', "{", "[", "}", "]")
            _, word = yield from self.until(*words, tell=tell)
            if not word:
                return
            tell(word)
            if word == "\\":
                yield from self.peek()
                tell(self.take(1))
            elif word == '"':
                quoted = not quoted
            else:
                depth += 1 if word in "{[" else -1
                if depth == 0:
                    return

    def _passed(self, length: int, tell: Callable[[str], None] | None) -> str:
        text = self.take(length)
        if tell is None:
            return text
        if text:
            tell(text)
        return ""


def _loaded(raw: str) -> str:
    try:
        text = json.loads(raw, strict=False)
    except ValueError as error:
        raise MalformedError("a string that is none") from error
    assert isinstance(text, str)
    return whole(text)


def _beginning_at_end(text: str, word: str) -> int:
    """How much of `word`, but not all, `text` ends with."""
    longest = min(len(word) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(word[:length])), 0)
