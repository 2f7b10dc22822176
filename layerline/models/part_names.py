"""The names of a GGUF model in several files, as gguf-split writes them: NAME-00001-of-00003.gguf and so on.

They lie side by side, and the model is called NAME.gguf. Opens no file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MAX_PARTS = 1000
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.gguf)")


@dataclass(frozen=True, slots=True)
class GgufPart:
    """What the name of a file says: it is part `number`, from 1, of `count`."""

    stem: str
    number: int
    count: int

    @classmethod
    def of(cls, name: str) -> GgufPart | None:
        """None of a file that is no part."""
        found = _NAME.fullmatch(name)
        if not found:
            return None
        part = cls(found["stem"], int(found["number"]), int(found["count"]))
        return part if 1 <= part.number <= part.count <= MAX_PARTS else None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all parts."""
        return tuple(f"{self.stem}-{number:05}-of-{self.count:05}.gguf" for number in range(1, self.count + 1))


def part_paths(path: Path) -> tuple[Path, ...]:
    """The files of the model at `path`: all parts if it is the first of several, or else itself."""
    part = GgufPart.of(path.name)
    return tuple(path.with_name(name) for name in part.files) if part and part.number == 1 else (path,)


def first_part(path: Path) -> Path:
    """The first part of the model that a part belongs to."""
    part = GgufPart.of(path.name)
    return path if part is None else path.with_name(part.files[0])


def is_later_part(path: Path) -> bool:
    """Whether a file belongs to the model of another."""
    part = GgufPart.of(path.name)
    return part is not None and part.number > 1


def whole_name(name: str) -> str:
    """What a model is called whose first part, or path to it, is called `name`."""
    found = _NAME.fullmatch(name)
    return found["stem"] + found["suffix"] if found else name
