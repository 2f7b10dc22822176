"""Who this node is, over restarts: its lasting id and the highest epoch it has served, one folder per name.

The folder is held for the life of the daemon, so that no second one on this machine can be the same node.
Does not know of other machines; a cloned id on the network is noticed where the node is advertised.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from layerline.errors import NodeDuplicateError, UsageError
from layerline.frames import MAX_EPOCH
from node.daemon.held_file import FileHeldError, held_file

ID_BYTES = 8
_NODE_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A node's lasting id, and the folder that remembers it."""

    node_id: str
    name: str
    folder: Path

    def last_epoch(self) -> int:
        """The highest epoch this node has taken a place in, over all its lives; 0 before the first."""
        path = self.folder / "epoch"
        text = _read(path, default="0")
        if not re.fullmatch(r"[0-9]{1,19}", text):
            raise _damaged(path)
        if int(text) >= MAX_EPOCH:
            raise UsageError(
                f"{path} says that this node was in the plan of epoch {text}, which is more than there can have been.",
                remedy=f"Remove {path} and start the node again; epochs then begin anew.",
            )
        return int(text)

    def remember_epoch(self, epoch: int) -> None:
        """Keeps `epoch` on disk as the highest so far."""
        _write(self.folder / "epoch", str(epoch))


@contextmanager
def held_identity(state: Path, name: str, address: str) -> Iterator[Identity]:
    """The identity of the node called `name`, held for the time of the block; made at its first start.

    `address` is where this daemon listens. Raises NodeDuplicateError if another daemon on this machine is that
    node, UsageError if the state folder cannot be used.
    """
    folder = state / "nodes" / _folder_name(name)
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(held_file(folder / "lock", address))
        except OSError as error:
            raise _unusable(folder, error) from error
        except FileHeldError as holder:
            raise _duplicate(name, holder.content, address) from None
        identity = Identity(node_id=_node_id(folder), name=name, folder=folder)
        identity.last_epoch()  # one that cannot be ends the start, not every hold
        yield identity


def _folder_name(name: str) -> str:
    return quote(name, safe="").replace(".", "%2E")


def _node_id(folder: Path) -> str:
    path = folder / "id"
    node_id = _read(path, default="")
    if not path.exists():
        node_id = secrets.token_hex(ID_BYTES)
        _write(path, node_id)
    if not _NODE_ID.fullmatch(node_id):
        raise _damaged(path)
    return node_id


def _read(path: Path, *, default: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(64).strip()
    except FileNotFoundError:
        return default
    except OSError as error:
        raise _unusable(path, error) from error


def _write(path: Path, text: str) -> None:
    """Writes in one piece, so that a power cut leaves the old text or the new one."""
    fresh = path.with_suffix(".new")
    try:
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"{path}, where a node keeps its identity, cannot be used: {error.strerror or error}.",
        remedy="Make it readable and writable, or set LAYERLINE_STATE to a folder that is.",
    )


def _damaged(path: Path) -> UsageError:
    return UsageError(
        f"{path}, where a node keeps its identity, is damaged.",
        remedy=f"Remove the folder {path.parent}: the node gets a new id.",
    )


def _duplicate(name: str, other: str, address: str) -> NodeDuplicateError:
    return NodeDuplicateError(
        f"A node named {name} already runs on this machine at {other or 'an address it has not told yet'}; "
        f"this one, at {address}, would be the same node.",
        node=name,
        remedy="Use the one that runs, or give this one another name with --name.",
    )
