"""A structure that takes too much is compiled by nobody but a child, which ends of it; the next one is not kept
waiting.
"""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from coordinator.text.model_text import ModelText
from coordinator.text.process import TextProcess
from layerline.requests import Structure

pytestmark = pytest.mark.more


def hostile() -> Structure:
    """Objects that must obey sixty schemas at once, each with expressions of its own."""
    parts = [
        {"type": "object", "properties": {f"p{j}": {"type": "string", "pattern": f".*{j}{i}.*"} for j in range(20)}}
        for i in range(60)
    ]
    return Structure(kind="json_schema", text=json.dumps({"allOf": parts}))


async def test_a_hostile_structure_is_refused_and_the_next_is_not() -> None:
    async with TextProcess(lambda: {"json": "", "vocabulary": 0}) as process:
        text = ModelText(cast("Any", None), cast("Any", None), (), process)
        assert await text._why_not(Structure(kind="regex", text="a+")) == ""
        assert "takes too much" in await text._why_not(hostile())
        assert await text._why_not(Structure(kind="regex", text="b+")) == ""
        assert await text._why_not(Structure(kind="regex", text="[")) == "", "who compiles it tells what is wrong"
