"""How far a model is on its way into service: what was said last, and what each node has loaded."""

from __future__ import annotations

from layerline.reports import Announcement, NodeProgress, Planned, PrepareEvent, Ready


class Loading:
    """Takes in what is told while a pipeline is planned and built, for who looks at it later.

    `text` is the last sentence, and `nodes` have the progress of each, by name.
    """

    def __init__(self) -> None:
        self.text = ""
        self.nodes: dict[str, NodeProgress] = {}

    def take(self, event: PrepareEvent) -> None:
        """This was told."""
        if isinstance(event, Announcement):
            self.text = event.text
        elif isinstance(event, NodeProgress):
            self.nodes[event.node] = event
        elif isinstance(event, Planned | Ready):
            self.end()

    def end(self) -> None:
        """What was told holds no more: another plan is made, or nothing is on its way."""
        self.text = ""
        self.nodes.clear()
