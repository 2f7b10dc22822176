"""JSON that a model wrote, read so that it can be written again: finite numbers, whole characters, no endless
nesting.
"""

from __future__ import annotations

import json
from typing import Any

import pydantic_core


def loaded(text: str) -> Any:
    """The value; ValueError for what is none that JSON can have."""
    value = pydantic_core.from_json(text, allow_inf_nan=False)
    json.dumps(value, allow_nan=False)  # 1e999 is infinite as well
    return value


def whole(text: str) -> str:
    """The text with halves of characters, as escapes make them, joined; what stays alone is replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
