"""Whether this machine lets us make network namespaces."""

from __future__ import annotations

import functools
import os
import secrets
import shutil

from tests.lab.commands import LabError, tool


@functools.cache
def why_no_lab() -> str:
    """Why there can be no lab here, or an empty string if there can."""
    missing = [name for name in ("ip", "tc", "taskset") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not found on PATH"
    probe = f"layerline-lab-{os.getpid()}-{secrets.token_hex(2)}-probe"
    try:
        tool("ip", "netns", "add", probe)
        try:
            tool("ip", "-n", probe, "link", "add", "br0", "type", "bridge")
            tool("ip", "netns", "exec", probe, "true")
        finally:
            tool("ip", "netns", "delete", probe)
    except LabError as error:
        return f"network namespaces cannot be made here: {error}"
    return ""
