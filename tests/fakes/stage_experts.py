"""The experts of a stage that computes nothing: they are moved as told, or fail to be."""

from __future__ import annotations

from collections.abc import Callable

from layerline.models.expert_placement import ExpertPlacement


class FakeExperts:
    """Keeps the placements that were taken; `failure` is raised while one is prepared, which waits for `go`."""

    def __init__(self, failure: BaseException | None = None, go: Callable[[], object] = lambda: None) -> None:
        self.taken: list[tuple[int, ExpertPlacement]] = []
        self.counts: dict[int, tuple[int, ...]] = {}
        self._failure = failure
        self._go = go

    def rows(self) -> dict[int, tuple[int, ...]]:
        return self.counts

    def prepared(self, layer: int, placement: ExpertPlacement) -> Callable[[], None]:
        self._go()
        if self._failure:
            raise self._failure
        return lambda: self.taken.append((layer, placement))
