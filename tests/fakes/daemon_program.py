"""A real node daemon with the worker that computes nothing: `python tests/fakes/daemon_program.py OPTION=VALUE …`.

Importing torch fails in it, as a daemon never may.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import cast

from layerline.errors import LayerlineError
from node.daemon.daemon import run_node
from node.daemon.settings import resolve_settings


def main() -> int:
    sys.modules["torch"] = cast("ModuleType", None)  # None is how Python spells "cannot be imported"
    flags = dict(argument.split("=", 1) for argument in sys.argv[1:])
    worker = (sys.executable, str(Path(__file__).with_name("daemon_worker.py")))
    try:
        return run_node(resolve_settings(flags, os.environ, None), worker)
    except LayerlineError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
