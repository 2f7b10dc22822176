"""For the daemon's short-lived children: end when the daemon does."""

from __future__ import annotations

import os
import threading


def end_with_parent() -> None:
    """Ends this process at once when its standard input ends, which it does when the daemon is gone."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
