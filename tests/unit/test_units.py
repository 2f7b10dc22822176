"""Sizes as people write and read them."""

from __future__ import annotations

import pytest

from layerline.units import format_bytes, format_seconds, parse_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("8GiB", 8 << 30),
        ("512MiB", 512 << 20),
        ("3.5GB", 3_500_000_000),
        ("1 TiB", 1 << 40),
        ("1.5KiB", 1536),
        ("7B", 7),
        (" 2kB ".replace("k", "K"), 2000),
        ("0.1GB", 100_000_000),
    ],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not a size"),
        ("8", "not a size"),
        ("GiB", "not a size"),
        ("-1GiB", "not a size"),
        ("1e9B", "not a size"),
        ("٣GiB", "not a size"),
        ("8 GiB of memory", "not a size"),
        ("1" * 16 + "B", "not a size"),
        ("8gb", "unit other than"),
        ("8G", "unit other than"),
        ("0GiB", "is nothing"),
        ("0.0001B", "is nothing"),
    ],
)
def test_what_is_no_size_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (269 << 20, "269 MiB"),
        ((1 << 30) - 1, "1.0 GiB"),
        (1 << 60, "1024 PiB"),
    ],
)
def test_a_size_is_written(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.001, "1 ms"), (0.01234, "12.3 ms"), (2.5, "2.5 s")])
def test_seconds_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
