"""The settings of a node, resolved once at its start: defaults < config file < environment < flags.

Knows which options there are and where they may come from; what each may be is in `node.daemon.options`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import platformdirs

from layerline.errors import UsageError
from layerline.host_name import host_name
from node.daemon import options
from node.daemon.devices.cores import compute_threads
from node.daemon.options import DeviceChoice

DEFAULT_PORT = 7355
DEFAULT_KEEP_ALIVE_S = 300.0
ENVIRONMENT_PREFIX = "LAYERLINE_NODE_"
OPTIONS = ("name", "host", "port", "device", "memory", "threads", "models", "mdns", "keep_alive")
MAX_CONFIG_BYTES = 1 << 20
Parsed = TypeVar("Parsed")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeSettings:
    """All that a node is told."""

    name: str
    host: str  # the one address to listen on; empty for every interface
    port: int | None  # None for DEFAULT_PORT or the next free one; 0 for any
    devices: tuple[str, ...]  # empty for all the accelerators there are, or else the CPU
    threads: int  # that compute on a CPU
    part_threads: tuple[int, ...]  # of each of `devices` instead, where they are parts of the CPU; else empty
    memory_bytes: int | None  # for the whole node; None for most of what is free
    models: Path
    mdns: bool
    keep_alive_s: float
    state: Path  # where identities and measurements are kept
    cache: Path  # where model cards are kept; nothing in it is needed

    def threads_of(self, devices: Sequence[str]) -> dict[str, int]:
        """The threads of the process that computes on each of `devices`, which are those asked for, if any were."""
        return dict(zip(devices, self.part_threads or (self.threads,) * len(devices), strict=True))


def resolve_settings(
    flags: Mapping[str, object], environment: Mapping[str, str], config_path: Path | None
) -> NodeSettings:
    """The settings that `flags` (by the names in OPTIONS; None is not given), environment and file make.

    Raises UsageError that names the option, where it was given, and what it may be.
    """
    given = _Given()
    if config_path is not None:
        given.add(_read_config(config_path), lambda key: f"{key} in {config_path}")
    given.add(_from_environment(environment), lambda key: f"{ENVIRONMENT_PREFIX}{key.upper()}")
    flags = {key: value for key, value in flags.items() if value is not None}
    given.add(flags, lambda key: f"--{key.replace('_', '-')}")
    cache = Path(environment.get("LAYERLINE_CACHE") or platformdirs.user_cache_dir("layerline")).absolute()
    choice = given.parsed("device", options.parse_device, DeviceChoice(devices=()))
    return NodeSettings(
        name=given.parsed("name", options.parse_name, host_name()),
        host=given.parsed("host", options.parse_host, ""),
        port=given.parsed("port", options.parse_port, None),
        devices=choice.devices,
        threads=_threads(given, choice),
        part_threads=choice.threads if len(choice.devices) == len(choice.threads) > 1 else (),
        memory_bytes=given.parsed("memory", options.parse_memory, None),
        models=given.parsed("models", options.parse_models, cache / "models"),
        mdns=given.parsed("mdns", options.parse_switch, True),
        keep_alive_s=given.parsed("keep_alive", options.parse_keep_alive, DEFAULT_KEEP_ALIVE_S),
        state=Path(environment.get("LAYERLINE_STATE") or platformdirs.user_state_dir("layerline")).absolute(),
        cache=cache,
    )


class _Given:
    """Values by option, the last one given wins, each with the words that say where it was given."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[object, str]] = {}

    def add(self, values: Mapping[str, object], origin: Callable[[str], str]) -> None:
        for key, value in values.items():
            if key not in OPTIONS:
                raise _unknown(key, origin)
            self._values[key] = (value, origin(key))

    def parsed(self, option: str, parse: Callable[[object], Parsed], default: Parsed) -> Parsed:
        if option not in self._values:
            return default
        value, origin = self._values[option]
        try:
            return parse(value)
        except ValueError as error:
            raise UsageError(f"{origin} is {value!r}: {error}.") from error

    def origin(self, option: str) -> str:
        return self._values[option][1]


def _unknown(key: str, origin: Callable[[str], str]) -> UsageError:
    nearest = difflib.get_close_matches(key.lower(), OPTIONS, n=1, cutoff=0.0)[0]
    return UsageError(f"{origin(key)} is not a setting of a node.", remedy=f"Did you mean {origin(nearest)}?")


def _read_config(path: Path) -> Mapping[str, object]:
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_CONFIG_BYTES)
        return tomllib.loads(text.decode())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--config {path} cannot be read: {error}.",
            remedy='It is a TOML file of lines like port = 7355 or memory = "8GiB".',
        ) from error


def _from_environment(environment: Mapping[str, str]) -> Mapping[str, object]:
    return {
        key.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for key, value in environment.items()
        if key.startswith(ENVIRONMENT_PREFIX)
    }


def _threads(given: _Given, choice: DeviceChoice) -> int:
    threads = given.parsed("threads", options.parse_threads, 0)
    if threads and any(named != threads for named in choice.threads):
        named = " and ".join(map(str, choice.threads))
        message = f"{given.origin('device')} says {named} threads and {given.origin('threads')} {threads}."
        raise UsageError(message, remedy="Give one of them.")
    return threads or max(choice.threads, default=0) or compute_threads()
