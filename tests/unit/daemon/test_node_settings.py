"""Where a node's settings come from, what they may be, and what is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.errors import UsageError
from node.daemon.settings import NodeSettings, resolve_settings


def resolve(
    flags: dict[str, object] | None = None, environment: dict[str, str] | None = None, config: Path | None = None
) -> NodeSettings:
    return resolve_settings(
        flags or {}, {"LAYERLINE_STATE": "/s", "LAYERLINE_CACHE": "/c", **(environment or {})}, config
    )


def test_a_node_that_is_told_nothing_has_sensible_settings() -> None:
    settings = resolve()
    assert settings.name
    assert settings.threads >= 1
    assert (settings.host, settings.port, settings.devices, settings.memory_bytes) == ("", None, (), None)
    assert (settings.mdns, settings.keep_alive_s) == (True, 300.0)
    assert (settings.models, settings.state, settings.cache) == (Path("/c/models"), Path("/s"), Path("/c"))


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('name = "file"\nport = 1\nmemory = "1GiB"\nmdns = false\nkeep_alive = 5\n')
    settings = resolve(
        {"name": "flag", "port": None}, {"LAYERLINE_NODE_NAME": "env", "LAYERLINE_NODE_PORT": "2"}, config
    )
    assert (settings.name, settings.port, settings.memory_bytes) == ("flag", 2, 1 << 30)
    assert (settings.mdns, settings.keep_alive_s) == (False, 5.0)


@pytest.mark.parametrize(
    ("option", "value", "field", "expected"),
    [
        ("host", "[::1]", "host", "::1"),
        ("host", "fe80::1%eth0", "host", "fe80::1%eth0"),
        ("port", 0, "port", 0),
        ("device", "cpu:3", "threads", 3),
        ("device", "cpu:3", "devices", ("cpu",)),
        ("device", "cuda:1,cuda:0", "devices", ("cuda:1", "cuda:0")),
        ("device", "cpu:3", "part_threads", ()),
        ("device", "cpu:1,cpu:2", "devices", ("cpu:0", "cpu:1")),
        ("device", "cpu:1,cpu:2", "part_threads", (1, 2)),
        ("device", "mps", "devices", ("mps",)),
        ("device", "auto", "devices", ()),
        ("threads", "7", "threads", 7),
        ("memory", "3.5GB", "memory_bytes", 3_500_000_000),
        ("models", "/m/../m", "models", Path("/m/../m")),
        ("mdns", "no", "mdns", False),
        ("keep_alive", "5m", "keep_alive_s", 300.0),
        ("keep_alive", "0", "keep_alive_s", 0.0),
        ("keep_alive", 1.5, "keep_alive_s", 1.5),
        ("device", "cuda:0,cuda:1,cpu", "devices", ("cuda:0", "cuda:1", "cpu")),
        ("device", "cuda:0,cpu:3", "devices", ("cuda:0", "cpu")),
        ("device", "cuda:0,cpu:3", "threads", 3),
        ("device", "cuda:0,cpu:3", "part_threads", ()),
    ],
)
def test_a_value_is_read(option: str, value: object, field: str, expected: object) -> None:
    assert getattr(resolve({option: value}), field) == expected


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("name", "", "printable"),
        ("name", "a b\n", "printable"),
        ("name", " a", "spaces"),
        ("name", "a=b", "no = and no comma"),
        ("name", "a,b", "no = and no comma"),
        ("name", "ü" * 32, "at most 63 bytes"),
        ("host", "a b", "address"),
        ("host", "10.0.0.0/8", "address"),
        ("port", "http", "whole number"),
        ("port", 65536, "whole number"),
        ("port", -1, "whole number"),
        ("port", True, "whole number"),
        ("port", "٣", "whole number"),
        ("device", "gpu", "must be auto"),
        ("device", "cuda", "must be auto"),
        ("device", "cuda:0,", "must be auto"),
        ("device", "cuda:01", "must be auto"),
        ("device", "cuda:0,cuda:0", "twice"),
        ("device", "cpu:0", "whole number"),
        ("device", "cpu:", "must be auto"),
        ("device", "cpu:1,cpu:0", "whole number"),
        ("device", "cpu,cpu", "must be auto"),
        ("device", "cpu:1,cuda:0", "must be auto"),
        ("device", "cuda:0,cpu,cpu", "must be auto"),
        ("device", "cuda:0,cpu:0", "whole number"),
        ("device", "mps,cpu", "must be auto"),
        ("device", "cpu:1,", "must be auto"),
        ("device", ",".join(["cpu:1"] * 65), "at most 64 devices"),
        ("memory", "8", "not a size"),
        ("memory", 8, "must be text"),
        ("threads", "0", "whole number"),
        ("threads", 1.5, "whole number"),
        ("models", "", "folder"),
        ("mdns", "maybe", "true or false"),
        ("mdns", 1, "true or false"),
        ("keep_alive", "-1", "a time like"),
        ("keep_alive", "nan", "a time like"),
        ("keep_alive", True, "must be text"),
        ("keep_alive", "999h", "30 days"),
    ],
)
def test_a_value_that_cannot_be_names_option_and_reason(option: str, value: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        resolve({option: value})
    assert caught.value.message.startswith(f"--{option.replace('_', '-')} is ")


def test_a_bad_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(UsageError, match="LAYERLINE_NODE_PORT is 'x'"):
        resolve(environment={"LAYERLINE_NODE_PORT": "x"})


def test_a_bad_value_in_the_file_names_key_and_file(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text("port = 99999\n")
    with pytest.raises(UsageError, match=f"port in {config} is 99999"):
        resolve(config=config)


def test_an_unknown_key_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('memroy = "1GiB"\n')
    with pytest.raises(UsageError, match=r"memroy in .* is not a setting.*Did you mean memory in"):
        resolve(config=config)
    with pytest.raises(UsageError, match="Did you mean LAYERLINE_NODE_PORT"):
        resolve(environment={"LAYERLINE_NODE_PROT": "1"})


@pytest.mark.parametrize("content", [b"port = ", b"\xff\xfe", b"port 7355"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    config = tmp_path / "node.toml"
    config.write_bytes(content)
    with pytest.raises(UsageError, match=r"node\.toml cannot be read"):
        resolve(config=config)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.toml cannot be read"):
        resolve(config=tmp_path / "absent.toml")


def test_two_numbers_of_threads_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--device says 2 threads and --threads 3"):
        resolve({"device": "cpu:2", "threads": 3})
    assert resolve({"device": "cpu:2", "threads": 2}).threads == 2
    with pytest.raises(UsageError, match="--device says 1 and 2 threads and --threads 2"):
        resolve({"device": "cpu:1,cpu:2", "threads": 2})


def test_every_device_has_its_threads() -> None:
    assert resolve({"device": "cpu:1,cpu:2"}).threads_of(("cpu:0", "cpu:1")) == {"cpu:0": 1, "cpu:1": 2}
    assert resolve({"threads": 3}).threads_of(("cuda:0", "cuda:1")) == {"cuda:0": 3, "cuda:1": 3}
