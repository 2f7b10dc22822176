"""A node is the same over restarts, and one daemon at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from layerline.errors import NodeDuplicateError, UsageError
from layerline.frames import MAX_EPOCH
from node.daemon.identity import held_identity

HERE, THERE = "10.0.0.2:7355", "10.0.0.2:7356"


def test_id_and_epoch_last_over_restarts(tmp_path: Path) -> None:
    with held_identity(tmp_path, "kitchen", HERE) as first:
        assert first.last_epoch() == 0
        first.remember_epoch(7)
    with held_identity(tmp_path, "kitchen", HERE) as second:
        assert (second.node_id, second.last_epoch()) == (first.node_id, 7)


def test_names_make_different_nodes_whatever_is_in_them(tmp_path: Path) -> None:
    names = ["a", "A b", "..", ".", "a/b", "ü" * 31]
    ids = set()
    for name in names:
        with held_identity(tmp_path, name, HERE) as identity:
            ids.add(identity.node_id)
            assert identity.folder.parent == tmp_path / "nodes"
    assert len(ids) == len(names)


def test_a_second_daemon_is_refused_with_both_addresses(tmp_path: Path) -> None:
    with held_identity(tmp_path, "kitchen", HERE) as first:
        with pytest.raises(NodeDuplicateError, match=f"{HERE}.*{THERE}.*--name"):
            held_identity(tmp_path, "kitchen", THERE).__enter__()
        with held_identity(tmp_path, "desk", THERE) as other:
            assert other.node_id != first.node_id


@pytest.mark.parametrize(("file", "content"), [("id", "no id"), ("id", ""), ("epoch", "-1"), ("epoch", "9" * 30)])
def test_a_damaged_file_is_named(tmp_path: Path, file: str, content: str) -> None:
    with held_identity(tmp_path, "kitchen", HERE) as identity:
        path = identity.folder / file
    path.write_text(content)
    with (
        pytest.raises(UsageError, match=rf"kitchen/{file}.* is damaged"),
        held_identity(tmp_path, "kitchen", HERE) as again,
    ):
        again.last_epoch()


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**63 - 2, 10**18 * 9, MAX_EPOCH])
def test_a_kept_epoch_that_cannot_be_ends_the_start_with_its_remedy(tmp_path: Path, epoch: int) -> None:
    with held_identity(tmp_path, "kitchen", HERE) as identity:
        path = identity.folder / "epoch"
        identity.remember_epoch(epoch)
    with pytest.raises(UsageError, match=rf"epoch {epoch}, which is more .* Remove {path} and start"):
        held_identity(tmp_path, "kitchen", HERE).__enter__()
    path.unlink()
    with held_identity(tmp_path, "kitchen", HERE) as again:
        assert (again.node_id, again.last_epoch()) == (identity.node_id, 0)


def test_a_state_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot be used.*LAYERLINE_STATE"):
        held_identity(tmp_path, "kitchen", HERE).__enter__()
