"""What the command ends with, and what each code means to whoever reads it in a script."""

from __future__ import annotations

SYSTEM_REFUSED = 74
OUTPUT_CLOSED = 141
INTERRUPTED = 130
TERMINATED = 143

MEANINGS = {
    0: "done",
    1: "a bug of layerline; -v shows where",
    2: "an option or argument that cannot be",
    3: "no node, or no coordinator, was found",
    4: "the model was not found, is damaged, differs between nodes, or is of an unknown kind",
    5: "no plan: the model does not fit, or --layers cannot be",
    6: "a node was lost, cannot be reached, is held by another coordinator, or cannot start",
    7: "the request cannot be answered, as when the prompt is longer than the context",
    8: "busy; the same may be asked again later",
    9: "a peer of another version, or that is not layerline",
    10: "something took longer than its deadline",
    SYSTEM_REFUSED: "the system refused: a full disk, a right that is missing, too many open files",
    INTERRUPTED: "ended by Ctrl-C",
    OUTPUT_CLOSED: "whoever read the output has gone",
    TERMINATED: "ended by SIGTERM",
}


def exit_code_lines() -> str:
    """The table as lines of text."""
    return "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())
