"""What the control groups of this process leave it of the machine: memory and processor time (Linux, versions 1 and 2).

A limit holds for a group and all below it, so the least on the way up counts. Where the groups are mounted, and which
part of them can be seen from here, the system says itself (/proc/self/mountinfo, /proc/self/cgroup; see cgroups(7)).
What cannot be read is no limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
MAX_FILE_BYTES = 1 << 20
UNLIMITED_BYTES = 1 << 60  # version 1 writes the largest number of pages for no limit
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLimit:
    """The memory that all processes of a group may have together, and how much of it is free."""

    total_bytes: int
    free_bytes: int


def memory_limit(process: Path = PROCESS) -> MemoryLimit | None:
    """The narrowest limit, as far as there is any."""
    limits = [
        *(_memory_of(group, "memory.max", "memory.current", "") for group in _groups(process, "")),
        *(_memory_of(group, "memory.high", "memory.current", "") for group in _groups(process, "")),
        *(
            _memory_of(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
            for group in _groups(process, "memory")
        ),
    ]
    known = [limit for limit in limits if limit]
    if not known:
        return None
    return MemoryLimit(
        total_bytes=min(limit.total_bytes for limit in known), free_bytes=min(limit.free_bytes for limit in known)
    )


def core_limit(process: Path = PROCESS) -> float:
    """How many cores' time this process may use; infinity without a limit."""
    quotas = [
        *(_quota(_text(group / "cpu.max").split()) for group in _groups(process, "")),
        *(
            _quota([_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")])
            for group in _groups(process, "cpu")
        ),
    ]
    return min(quotas, default=math.inf)


def _memory_of(group: Path, limit: str, usage: str, prefix: str) -> MemoryLimit | None:
    total_bytes = _number(_text(group / limit))
    if total_bytes is None or total_bytes >= UNLIMITED_BYTES:
        return None
    used_bytes = (_number(_text(group / usage)) or 0) - _reclaimable_bytes(group, prefix)
    return MemoryLimit(total_bytes=total_bytes, free_bytes=max(0, total_bytes - max(0, used_bytes)))


def _reclaimable_bytes(group: Path, prefix: str) -> int:
    """What of the group's memory only caches files, such as weights that were read."""
    words = [line.split() for line in _text(group / "memory.stat").splitlines()]
    counted = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(_number(word[1]) or 0 for word in words if len(word) == 2 and word[0] in counted)


def _quota(words: Sequence[str]) -> float:
    quota_us, period_us = (_number(word) for word in (*words, "", "")[:2])
    return quota_us / period_us if quota_us and period_us else math.inf


def _groups(process: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and all above it that can be seen; `controller` is empty for version 2."""
    path = _own_path(process, controller)
    if path is None:
        return
    for root, mount in _mounts(process, controller):
        below = PurePosixPath(path).relative_to(root) if PurePosixPath(path).is_relative_to(root) else PurePosixPath()
        if ".." in below.parts:  # the group lies outside what this namespace may see
            below = PurePosixPath()
        folder = mount / below
        yield folder
        for parent in folder.parents:
            if not parent.is_relative_to(mount):
                break
            yield parent


def _own_path(process: Path, controller: str) -> str | None:
    for line in _text(process / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(",") if controller else number == "0" and not controllers:
            return path or "/"
    return None


def _mounts(process: Path, controller: str) -> Iterator[tuple[str, Path]]:
    """What each mount of the controller shows (a path among groups), and where."""
    for line in _text(process / "mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kinds) < 3:
            continue
        is_v1 = kinds[0] == "cgroup" and controller in kinds[2].split(",")
        if is_v1 if controller else kinds[0] == "cgroup2":
            yield _unescaped(fields[3]), Path(_unescaped(fields[4]))


def _unescaped(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)


def _text(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_FILE_BYTES).strip()
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else None
