"""What the programs of llama.cpp print of their measurements, checked before it is believed."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

from tests.lab.commands import LabError

SHOWN_CHARACTERS = 200


def bench_tokens_per_s(text: str, *, prompt_tokens: int, new_tokens: int, threads: int, backend: str) -> float:
    """The speed in what `llama-bench -o json` printed of the one measurement that was asked for.

    LabError if there is another one, or none: one of other sizes, or that ran elsewhere, would be another's speed.
    """
    measured = _loaded(text, "llama-bench")
    if not (isinstance(measured, list) and len(measured) == 1 and isinstance(measured[0], dict)):
        raise _junk("llama-bench", "it is not a list of one measurement", text)
    (fields,) = measured
    expected = {"n_prompt": prompt_tokens, "n_gen": new_tokens, "n_threads": threads}
    _check_fields(fields, expected, "llama-bench", text)
    if backend not in str(fields.get("backends")).split(","):
        raise _junk("llama-bench", f"it ran on {fields.get('backends')!r} in place of {backend}", text)
    samples = fields.get("samples_ts")
    if not (isinstance(samples, list) and len(samples) == 1 and _is_speed(samples[0])):
        raise _junk("llama-bench", f"samples_ts is {samples!r}", text)
    return samples[0]


def batched_tokens_per_s(text: str, *, streams: int, new_tokens: int, threads: int) -> float:
    """The speed of all streams together in what `llama-batched-bench --output-format jsonl` printed."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise _junk("llama-batched-bench", f"it is {len(lines)} lines", text)
    fields = _loaded(lines[0], "llama-batched-bench")
    if not isinstance(fields, dict):
        raise _junk("llama-batched-bench", "it is not an object", text)
    _check_fields(fields, {"pl": streams, "tg": new_tokens, "n_threads": threads}, "llama-batched-bench", text)
    speed = fields.get("speed_tg")
    if not _is_speed(speed):
        raise _junk("llama-batched-bench", f"speed_tg is {speed!r}", text)
    return speed


def _loaded(text: str, program: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _junk(program, str(error), text) from error


def _check_fields(fields: dict[str, Any], expected: dict[str, int], program: str, text: str) -> None:
    for name, value in expected.items():
        if fields.get(name) != value:
            raise _junk(program, f"{name} is {fields.get(name)!r} in place of {value}", text)


def _is_speed(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _junk(program: str, why: str, text: str) -> LabError:
    return LabError(f"{program} printed what is not understood: {why}. It began: {text[:SHOWN_CHARACTERS]!r}")
