"""That `node` and `coordinator` are layerline's own packages, and not something of that name that comes before them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from layerline.errors import UsageError

PACKAGES = ("coordinator", "node")
ROOT = Path(__file__).resolve().parents[2]  # what holds all three packages, be it a clone or site-packages


def require_own_packages() -> None:
    """Raises UsageError that names the file which hides a package of layerline, as one on PYTHONPATH may."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin != ROOT / package / "__init__.py":
            hiding = origin or (spec and list(spec.submodule_search_locations or ())) or "nothing"
            raise UsageError(
                f"{hiding} hides layerline's package {package}.",
                remedy="Rename it, or take its folder off PYTHONPATH.",
            )
