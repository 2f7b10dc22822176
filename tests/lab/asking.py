"""Prompts as a user on a machine of the lab gives them, and what comes of them."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.machine import Machine
from tests.lab.process import Finished, Process

MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
# At each token of the answer the next best is 0.66 behind or more, so that no machine's rounding takes another one.
QUESTION = "What is the capital of Germany?"
ANSWER = "The capital of Germany is Berlin."
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
MOST_TOKENS = 64  # a wrong answer may go on for ever
ANSWER_DEADLINE_S = 60.0
BEGIN_DEADLINE_S = 40.0
END_DEADLINE_S = 10.0
LATE_CHARACTERS = 200  # that a stream may still bring after a loss


def ask(machine: Machine, *options: str, text: str = QUESTION, model: str = MODEL) -> Finished:
    """`layerline prompt` to its end, by default a question whose answer is known."""
    words = ["layerline", "prompt", text, "--model", model, "--system", SYSTEM, "--json"]
    words += ["--max-tokens", str(MOST_TOKENS), *options]
    return machine.run(words, deadline_s=ANSWER_DEADLINE_S)


def answered(finished: Finished) -> dict[str, Any]:
    """The object that --json printed; fails with what was said instead of an answer."""
    assert finished.exit_code == 0, finished.stderr
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def begin_long_answer(machine: Machine, *options: str) -> Process:
    """A prompt in mid-answer, with far more of it to come."""
    text = "Write a long story about the sea."
    prompt = machine.start(["layerline", "prompt", text, "--model", MODEL, "--max-tokens", "3000", *options])
    prompt.wait_for_output(r"\w+ \w+ \w+", deadline_s=BEGIN_DEADLINE_S)
    return prompt


def assert_goes_on(prompt: Process) -> None:
    """More of the answer comes than could have been on its way; then it is ended."""
    written = len(prompt.stdout.text)
    prompt.wait_for_output(rf"(?s).{{{written + LATE_CHARACTERS}}}", deadline_s=BEGIN_DEADLINE_S)
    assert "Traceback" not in prompt.stderr.text
    prompt.kill()
    prompt.wait(deadline_s=END_DEADLINE_S)


def nodes_seen(machine: Machine, *options: str) -> dict[str, dict[str, Any]]:
    """What `layerline nodes --json` lists, by name."""
    finished = machine.run(["layerline", "nodes", "--json", *options])
    assert finished.exit_code == 0, finished.stderr
    return {node["name"]: node for node in json.loads(finished.stdout)["nodes"]}
