"""The programs of llama.cpp that are measured."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """Its programs in `folder`, whether they are there or not."""

    NAMES: ClassVar[tuple[str, ...]] = ("llama-bench", "llama-batched-bench", "ggml-rpc-server")
    folder: Path

    @property
    def are_there(self) -> bool:
        """Whether all of them can be run."""
        return all(os.access(self.folder / name, os.X_OK) for name in self.NAMES)

    @property
    def bench(self) -> str:
        """What times one stream and one prompt."""
        return str(self.folder / self.NAMES[0])

    @property
    def batched_bench(self) -> str:
        """What times several streams together."""
        return str(self.folder / self.NAMES[1])

    @property
    def rpc_server(self) -> str:
        """What lends a machine's processor to a llama.cpp on another one."""
        return str(self.folder / self.NAMES[2])
