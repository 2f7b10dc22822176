"""A child that indexes a model and ends otherwise than it should."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from layerline.errors import DeadlineError
from layerline.models.indexer import index_apart

pytestmark = pytest.mark.system

DEADLINE_S = 30


@pytest.mark.parametrize("progress", ["", """echo '["progress", 1, 2]'; """])
async def test_a_child_that_has_said_all_and_does_not_end_is_ended(tmp_path: Path, progress: str) -> None:
    def command(_path: Path, _name: str, _cache: Path, _card_path: Path) -> Sequence[str]:
        return ("/bin/sh", "-c", f"{progress}exec >&-; read forever")

    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(DeadlineError, match="no progress"):
            await index_apart(
                tmp_path, "tiny", tmp_path, tmp_path / "card", lambda *_: None, command, silence_deadline_s=0.2
            )
