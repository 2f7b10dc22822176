"""The models that are measured."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.lab.machine import REPOSITORY


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchModel:
    """A model by the word that scripts/get-model knows it by; `context_tokens` hold all that a case asks at once."""

    key: str
    layers: int
    context_tokens: int

    def fetch(self) -> Path:
        """Its file, brought into the cache if it is not there."""
        script = REPOSITORY / "scripts" / "get-model"
        done = subprocess.run([script, self.key], stdout=subprocess.PIPE, text=True, check=True)
        return Path(done.stdout.splitlines()[-1])


MODELS = {
    model.key: model
    for model in (
        BenchModel(key="smollm2", layers=30, context_tokens=8192),
        BenchModel(key="qwen", layers=24, context_tokens=16384),
    )
}
