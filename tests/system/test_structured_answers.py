"""Two hundred schemas and thirty tools with a real model: all answers are valid, and the same however it is split."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.vocabularies import vocabularies
from tests.lab.asking import MODEL
from tests.lab.lab import Lab
from tests.lab.nodes import spare_measuring, start_node

URL = "http://127.0.0.1:7380"
TEMPLATE = "Qwen-Qwen2.5-7B-Instruct.jinja"
READY_DEADLINE_S = 60.0
DEADLINE_S = 900.0
EXACT = ("--dtype", "float32", "--precision", "full", "--context", "1024")
SPLITS = {
    "one stage": (("cpu:1",), ()),
    "two stages, the second of two ranks": (("cpu:1", "cpu:1,cpu:1"), ("--layers", "a=0-11,b=12-29")),
}


def answers(model: Path, devices: Sequence[str], options: Sequence[str]) -> dict[str, str]:
    names = ["a", "b"][: len(devices)]
    template = vocabularies() / "templates" / TEMPLATE
    with Lab(*names, "desk") as lab:
        for name, device in zip(names, devices, strict=True):
            lab[name].give_model(model)
            spare_measuring(lab[name])
            start_node(lab[name], device=device)
        words = ["layerline", "coordinator", "--model", MODEL, "--chat-template", str(template), *EXACT, *options]
        coordinator = lab["desk"].start(words)
        coordinator.wait_for("Ready:", deadline_s=READY_DEADLINE_S)
        finished = lab["desk"].run([sys.executable, "-m", "tests.lab.structured", URL], deadline_s=DEADLINE_S)
        coordinator.terminate()
        coordinator.wait(deadline_s=20)
    assert finished.exit_code == 0, finished.stderr
    found: dict[str, str] = json.loads(finished.stdout)
    return found


@pytest.mark.slow
def test_every_answer_is_valid_and_the_same_however_the_model_is_split(allowed: None, smollm2: Path) -> None:
    one, two = (answers(smollm2, *split) for split in SPLITS.values())
    assert len(one) >= 3 * (200 + 30)
    assert {name: text for name, text in two.items() if one[name] != text} == {}
