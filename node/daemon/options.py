"""What each setting of a node may be: one parser per option, from text or from a TOML value.

Every parser raises ValueError with the reason; who gave the value, and where, is known to the caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from layerline.sharing import MAX_DEVICES
from layerline.units import parse_bytes

MAX_NAME_BYTES = 63
MAX_THREADS = 1024
MAX_KEEP_ALIVE_S = 30 * 24 * 3600.0
_SECONDS_OF = {"": 1, "s": 1, "m": 60, "h": 3600}
_CUDA = re.compile(r"cuda:(0|[1-9][0-9]{0,2})")
_CPU = re.compile(r"cpu:[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceChoice:
    """The devices asked for, none for whatever there is; `threads` are those of each CPU, if `cpu:N` named them."""

    devices: tuple[str, ...]
    threads: tuple[int, ...] = ()


def parse_name(value: object) -> str:
    """A node's name: short, printable, and free of what `--layers a=0-14,b=15-29` gives a meaning."""
    name = _text(value)
    if not name or not name.isprintable() or name != name.strip():
        raise ValueError("must be printable text without spaces around it")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"must have at most {MAX_NAME_BYTES} bytes")
    if set(name) & set("=,"):
        raise ValueError("must have no = and no comma")
    return name


def parse_host(value: object) -> str:
    """An address of this machine, or a name that stands for one."""
    host = _text(value).removeprefix("[").removesuffix("]")
    if not host or not host.isprintable() or set(host) & set(" []/") or len(host) > 255:
        raise ValueError("must be an address of this machine, like 192.168.1.5")
    return host


def parse_port(value: object) -> int:
    """A port; 0 lets the system choose one."""
    return _whole_number(value, 0, 65535)


def parse_device(value: object) -> DeviceChoice:
    """auto, cpu, cpu:N, mps, cuda:0,cuda:1, or cpu:N,cpu:N for parts of the CPU, which are called cpu:0 and cpu:1.

    Behind GPUs there may be the CPU, as in cuda:0,cpu or cuda:0,cpu:8.
    """
    text = _text(value)
    if text == "auto":
        return DeviceChoice(devices=())
    names = tuple(text.split(","))
    if len(names) > MAX_DEVICES:
        raise ValueError(f"must name at most {MAX_DEVICES} devices")
    if names in (("cpu",), ("mps",)):
        return DeviceChoice(devices=names)
    if all(_CPU.fullmatch(name) for name in names):
        threads = tuple(parse_threads(name.removeprefix("cpu:")) for name in names)
        parts = tuple(f"cpu:{rank}" for rank in range(len(names)))
        return DeviceChoice(devices=parts if len(parts) > 1 else ("cpu",), threads=threads)
    gpus, behind = (names[:-1], names[-1]) if names[-1].startswith("cpu") else (names, "")
    is_known = behind in ("", "cpu") or _CPU.fullmatch(behind)
    if not is_known or not gpus or not all(_CUDA.fullmatch(name) for name in gpus):
        raise ValueError("must be auto, cpu, cpu:N, mps, or a list like cuda:0,cuda:1 or cuda:0,cpu or cpu:2,cpu:2")
    if len(set(gpus)) < len(gpus):
        raise ValueError("names a device twice")
    threads = (parse_threads(behind.removeprefix("cpu:")),) if behind.startswith("cpu:") else ()
    return DeviceChoice(devices=(*gpus, "cpu") if behind else gpus, threads=threads)


def parse_memory(value: object) -> int:
    """Bytes that models may take on this node."""
    return parse_bytes(_text(value))


def parse_threads(value: object) -> int:
    """Threads that compute on the CPU."""
    return _whole_number(value, 1, MAX_THREADS)


def parse_models(value: object) -> Path:
    """The folder that holds models."""
    text = _text(value)
    if not text or "\0" in text:
        raise ValueError("must be a folder")
    return Path(text).expanduser().absolute()


def parse_switch(value: object) -> bool:
    """true or false, also as text."""
    if isinstance(value, bool):
        return value
    switches = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if not isinstance(value, str) or value.lower() not in switches:
        raise ValueError("must be true or false")
    return switches[value.lower()]


def parse_keep_alive(value: object) -> float:
    """Seconds, from 300, 300s, 5m or 1h."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([smh]?)", _text(value))
    if not match:
        raise ValueError("must be a time like 300s, 5m or 1h")
    seconds = float(match[1]) * _SECONDS_OF[match[2]]
    if seconds > MAX_KEEP_ALIVE_S:
        raise ValueError("must be at most 30 days")
    return seconds


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


def _whole_number(value: object, least: int, most: int) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"must be a whole number from {least} to {most}")
    return value
