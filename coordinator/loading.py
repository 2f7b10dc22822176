"""How far a model is on its way into service: what was said last, and what each node has loaded."""

from __future__ import annotations

from layerline.reports import Announcement, NodeProgress, Planned, PlanReport, PrepareEvent, Ready


class Loading:
    """Takes in what is told while a pipeline is planned and built, for who looks at it later.

    `text` is the last sentence, `plan` what is being built, and `nodes` have the progress of each, by name.
    """

    def __init__(self) -> None:
        self.text = ""
        self.plan: PlanReport | None = None
        self.nodes: dict[str, NodeProgress] = {}

    def take(self, event: PrepareEvent) -> None:
        """This was told."""
        if isinstance(event, Announcement):
            self.text = event.text
        elif isinstance(event, Planned):
            self.text, self.plan = "", event.plan
            self.nodes.clear()
        elif isinstance(event, NodeProgress):
            self.nodes[event.node] = event
        elif isinstance(event, Ready):
            self.end()

    def end(self) -> None:
        """Nothing is on its way any more."""
        self.text, self.plan = "", None
        self.nodes.clear()
