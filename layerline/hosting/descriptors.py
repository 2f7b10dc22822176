"""File descriptors: every connection, worker and file takes one, and a program is given few by default."""

from __future__ import annotations

import contextlib
import resource

MOST = 1 << 16
FEWEST_CONNECTIONS = 8
MOST_CONNECTIONS = 4_096


def raise_descriptor_limit() -> None:
    """Has this process use as many as the system allows it; the children it starts have the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if wanted > soft:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """How many connections a server may have, so that most descriptors are left for what it has to do."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, soft // 4))
