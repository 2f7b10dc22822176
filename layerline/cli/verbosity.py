"""-v: whether the log, and the traceback of a bug, are shown on standard error."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from layerline.printable import log_to_standard_error

SHORT = "%(asctime)s %(levelname)s %(message)s"
FULL = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass(kw_only=True)
class Verbosity:
    """Set while the command line is read; one for a run of the command."""

    on: bool = False

    def apply(self, *, daemon: bool) -> None:
        """Sets the log up: all of it with -v; otherwise what a daemon does, and of other commands nothing."""
        if self.on:
            log_to_standard_error(logging.DEBUG, FULL)
            return
        logging.getLogger("zeroconf").setLevel(logging.ERROR)  # it warns with a traceback of every unused interface
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read when gRPC is loaded; it logs lost peers on its own
        if daemon:
            log_to_standard_error(logging.INFO, SHORT, "%H:%M:%S")
        else:
            logging.basicConfig(handlers=[logging.NullHandler()])
