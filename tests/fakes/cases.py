"""Cases of a test, of which some are left to the whole run."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def cases(values: Iterable[Any], *, more: Container[Any]) -> list[Any]:
    """Parameters of a test or fixture, those in `more` marked as what `--quick` leaves out."""
    return [pytest.param(value, marks=pytest.mark.more) if value in more else value for value in values]
