"""Responses that were given, for as long as a further one may go on from them: in memory, for an hour, bounded."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from layerline.chat import Message

KEPT_S = 3600.0
MAX_RESPONSES = 1000
MAX_LETTERS = 32 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptResponse:
    """What was told, and the turns of the chat up to it and with it."""

    told: dict[str, Any]
    turns: tuple[Message, ...]
    until_s: float

    @property
    def letters(self) -> int:
        """About how much of memory it takes."""
        return sum(len(turn.content) + len(turn.thinking) + 200 for turn in self.turns)


class KeptResponses:
    """Those of one coordinator; the oldest go first where there are too many."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._letters = 0

    def keep(self, told: dict[str, Any], turns: tuple[Message, ...]) -> None:
        """Keeps a response under its id."""
        kept = KeptResponse(told=told, turns=turns, until_s=time.monotonic() + KEPT_S)
        self._kept[told["id"]] = kept
        self._letters += kept.letters
        while len(self._kept) > MAX_RESPONSES or (self._letters > MAX_LETTERS and len(self._kept) > 1):
            self.forget(next(iter(self._kept)))

    def get(self, id_: str) -> KeptResponse | None:
        """The response of that id; None if there is none, or not any more."""
        now_s = time.monotonic()
        while self._kept and (oldest := next(iter(self._kept.values()))).until_s < now_s:
            self.forget(oldest.told["id"])
        return self._kept.get(id_)

    def forget(self, id_: str) -> bool:
        """Forgets a response; False if there is none."""
        kept = self._kept.pop(id_, None)
        if kept:
            self._letters -= kept.letters
        return kept is not None
