"""The processor that is measured on: what it is called, and which of its instructions decide how fast it can be."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.bench.this_machine import machine_facts

TELLING = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp", "i8mm", "sve")


def processor() -> str:
    """Its name and those of the telling instructions that it has."""
    found = [instruction for instruction in TELLING if instruction in _instructions()]
    return f"{machine_facts()['cpu']} ({' '.join(found) or 'none of the instructions that are looked for'})"


def processor_key() -> str:
    """The same for two processors if what is compiled for one runs on the other."""
    return hashlib.sha256(" ".join(sorted(_instructions())).encode()).hexdigest()[:8]


def _instructions() -> set[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
