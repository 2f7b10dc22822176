"""What is shown on standard error while a model is made ready: who holds which layers, and bars on a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from layerline.cli.render.sentences import plan_lines
from layerline.printable import printable
from layerline.reports import Announcement, NodeProgress, Planned, PlanReport, PrepareEvent, Ready

PHASES = {"index": "checks its files", "load": "loads"}


class LoadScreen:
    """A block during which events are shown. Bars end with it; the plan stays. Quiet ones show nothing."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._announced = False
        self._planned = False
        self._bars: dict[tuple[str, str], TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> LoadScreen:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._progress.stop()

    def show(self, event: PrepareEvent) -> None:
        """Shows one event."""
        match event:
            case Announcement():
                self._show_announcement(event)
            case NodeProgress():
                self._show_progress(event)
            case Planned() | Ready():
                self._show_plan(event.plan)

    def _show_announcement(self, event: Announcement) -> None:
        """On a terminal all; into a file not the first, which only says that something has begun."""
        if not self._quiet and (self._announced or self._console.is_terminal):
            self._console.print(printable(event.text), style="dim")
        self._announced = True

    def _show_progress(self, event: NodeProgress) -> None:
        key = (event.node, event.phase)
        if key not in self._bars:
            description = f"{event.node or 'this machine'} {PHASES.get(event.phase, event.phase)}"
            self._bars[key] = self._progress.add_task(printable(description))
        self._progress.update(self._bars[key], completed=event.done_bytes, total=event.total_bytes)

    def _show_plan(self, plan: PlanReport) -> None:
        """Once: the plan that is ready is the one that was planned."""
        if not self._planned and not self._quiet:
            self._console.print("\n".join(map(printable, plan_lines(plan))))
        self._planned = True
