"""The checked-in code of the protocol is what its .proto files make."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = "layerline/rpc/v1"


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed, so nothing can be generated")
    subprocess.run([ROOT / "scripts" / "protos", tmp_path], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / GENERATED).iterdir()}
    assert {Path(name).stem.partition("_pb2")[0] for name in made} == {
        path.stem for path in (ROOT / "protos" / GENERATED).glob("*.proto")
    }
    for name, text in made.items():
        assert (ROOT / GENERATED / name).read_text() == text, f"{name} is stale: run scripts/protos"
