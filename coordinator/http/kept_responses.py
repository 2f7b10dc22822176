"""Responses that were given, for as long as a further one may go on from them: in memory, for an hour, bounded."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from layerline.chat import Message

KEPT_S = 3600.0
MAX_RESPONSES = 1000
MAX_BYTES = 64 << 20
TURN_BYTES = 500  # of a turn beside its texts


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptResponse:
    """What was told, as JSON, and the turns of the chat up to it and with it."""

    id: str
    told: bytes
    turns: tuple[Message, ...]
    until_s: float

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self.told) + sum(map(_size, self.turns))


class KeptResponses:
    """Those of one coordinator; the oldest go first where there are too many."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KeptResponse] = OrderedDict()
        self._size = 0

    def keep(self, told: dict[str, Any], turns: tuple[Message, ...]) -> None:
        """Keeps a response under its id."""
        data, until_s = json.dumps(told, ensure_ascii=False).encode(), time.monotonic() + KEPT_S
        kept = KeptResponse(id=told["id"], told=data, turns=turns, until_s=until_s)
        self._kept[kept.id] = kept
        self._size += kept.size
        while len(self._kept) > MAX_RESPONSES or (self._size > MAX_BYTES and len(self._kept) > 1):
            self.forget(next(iter(self._kept)))

    def get(self, id_: str) -> KeptResponse | None:
        """The response of that id; None if there is none, or not any more."""
        now_s = time.monotonic()
        while self._kept and (oldest := next(iter(self._kept.values()))).until_s < now_s:
            self.forget(oldest.id)
        return self._kept.get(id_)

    def forget(self, id_: str) -> bool:
        """Forgets a response; False if there is none."""
        kept = self._kept.pop(id_, None)
        if kept:
            self._size -= kept.size
        return kept is not None


def _size(turn: Message) -> int:
    """Of a turn; most letters take one byte."""
    calls = sum(len(call.arguments) + len(call.name) + TURN_BYTES for call in turn.tool_calls)
    return len(turn.content) + len(turn.thinking) + calls + TURN_BYTES
