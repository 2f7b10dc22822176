"""The composition root of the node daemon."""

from __future__ import annotations

from node.daemon.settings import NodeSettings


def run_node(settings: NodeSettings) -> int:
    """Runs a node until a signal ends it; returns the exit code. Raises LayerlineError if it cannot start."""
    raise NotImplementedError
