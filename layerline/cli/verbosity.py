"""-v: whether the log, and the traceback of a bug, are shown on standard error."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(kw_only=True)
class Verbosity:
    """Set while the command line is read; one for a run of the command."""

    on: bool = False

    def apply(self, *, daemon: bool) -> None:
        """Sets the log up: a daemon keeps its own log when -v is not given, other commands show none."""
        if self.on:
            logging.basicConfig(stream=sys.stderr, level=logging.DEBUG, format=FORMAT)
            return
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read when gRPC is loaded; it logs lost peers on its own
        if not daemon:
            logging.basicConfig(handlers=[logging.NullHandler()])
