"""An exponential average of measurements, in which the latest count most."""

from __future__ import annotations

WEIGHT = 0.25  # of the latest measurement


class Average:
    """Starts with the first measurement; `value` is 0 before it."""

    def __init__(self) -> None:
        self.value = 0.0
        self._known = False

    def add(self, measured: float) -> None:
        """Takes in a measurement."""
        self.value = self.value + WEIGHT * (measured - self.value) if self._known else measured
        self._known = True
