"""Model files that are not what they should be, on one machine of two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf import GGUFReader

from tests.lab.asking import ANSWER, MODEL, answered, ask
from tests.lab.two_nodes import TwoNodes

TENSOR = "blk.3.ffn_down.weight"


@pytest.fixture
def own_copy(cluster: TwoNodes, smollm2: Path) -> Iterator[Path]:
    """Node b's copy of the model, to be spoilt; the right one is back afterwards."""
    copy = cluster.b.models / MODEL
    copy.unlink()
    shutil.copyfile(smollm2, copy)
    yield copy
    copy.unlink()
    cluster.b.give_model(smollm2)


@pytest.mark.slow
def test_one_byte_of_a_tensor_is_other(cluster: TwoNodes, own_copy: Path) -> None:
    with open(own_copy, "r+b") as file:
        file.seek(_tensor_offset(own_copy) + 1000)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    workers = cluster.workers()
    refused = ask(cluster.desk, *cluster.by_address)
    assert refused.exit_code == 4
    assert TENSOR in refused.stderr
    assert "node b" in refused.stderr
    assert cluster.workers() == workers


def test_a_truncated_file(cluster: TwoNodes, own_copy: Path) -> None:
    with open(own_copy, "r+b") as file:
        file.truncate(own_copy.stat().st_size - 1000)
    workers = cluster.workers()
    refused = ask(cluster.desk, *cluster.by_address)
    assert refused.exit_code == 4
    assert "truncated" in refused.stderr
    assert "node b" in refused.stderr.casefold()
    assert cluster.workers() == workers


@pytest.mark.slow
def test_the_right_file_is_taken_again(cluster: TwoNodes, own_copy: Path) -> None:
    assert answered(ask(cluster.desk, *cluster.by_address))["text"] == ANSWER


def _tensor_offset(path: Path) -> int:
    return next(int(tensor.data_offset) for tensor in GGUFReader(path).tensors if tensor.name == TENSOR)
