"""How a worker ended, in words, and what to do about it."""

from __future__ import annotations

import contextlib
import signal

# What programs say of it last: Python, C++, the system, gRPC, the loader of libraries.
OUT_OF_MEMORY = ("MemoryError", "bad_alloc", "annot allocate memory", "Failed to start", "failed to map segment")


def ending(code: int) -> str:
    """What came of a process that has ended with that code."""
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL), perhaps because the machine ran out of memory"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
        return f"was ended by signal {-code}"
    return f"ended by itself with exit code {code}"


def remedy(code: int, last_word: str) -> str:
    """What to do about it, if its code or its last word says so; empty: nothing in particular."""
    if code == -signal.SIGKILL:
        return "The node is ready to load again; if memory ran out, give it a smaller --memory."
    if any(sign in last_word for sign in OUT_OF_MEMORY):
        return "Memory ran out: raise this user's limit (ulimit -v), or give the node a smaller --memory."
    return ""
