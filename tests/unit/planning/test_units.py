"""Quantities as people read them."""

from __future__ import annotations

import pytest

from layerline.units import format_bytes, format_seconds


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.00 KiB"),
        (40 << 20, "40.0 MiB"),
        (300 << 20, "300 MiB"),
        (1023 << 20, "1023 MiB"),
        (5 << 28, "1.25 GiB"),
        (3 << 40, "3.00 TiB"),
        (5000 << 40, "5000 TiB"),
    ],
)
def test_bytes_have_three_digits_and_a_unit(size_bytes: int, text: str):
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.001, "1 ms"), (0.01234, "12.3 ms"), (2.5, "2.5 s")])
def test_seconds_have_three_digits_and_a_unit(seconds: float, text: str):
    assert format_seconds(seconds) == text
