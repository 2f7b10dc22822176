"""Stop strings in streamed text. Knows only text: a stop string may begin in one token and end in another."""

from __future__ import annotations

from collections.abc import Sequence

from layerline.errors import RequestError

MAX_STOP_CHARACTERS = 1024


class StopStrings:
    """Passes text on until one of `stops` is complete, and cuts there.

    The first stop string to be complete counts (of those that end together, the one that begins first), so the
    answer does not depend on how the text was cut into pieces. Text that may be the beginning of one is held back.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if any(not 0 < len(stop) <= MAX_STOP_CHARACTERS for stop in stops):
            raise RequestError(f"A stop string must have 1 to {MAX_STOP_CHARACTERS} characters.")
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None  # the stop string that was found

    def push(self, text: str) -> str:
        """What of the text so far can be shown and was not; nothing after a stop string."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            _, end, self.matched = min(found)
            self._held = ""
        else:
            end = len(text) - max((_beginning_at_end(text, stop) for stop in self._stops), default=0)
            self._held = text[end:]
        return text[:end]

    def flush(self) -> str:
        """What was held back, at the end of the text."""
        text, self._held = self._held, ""
        return text


def _beginning_at_end(text: str, stop: str) -> int:
    """Length of the longest proper beginning of `stop` that `text` ends with."""
    longest = min(len(stop) - 1, len(text))
    return next((length for length in range(longest, 0, -1) if text.endswith(stop[:length])), 0)
