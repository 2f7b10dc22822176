from __future__ import annotations

import os
import threading

from tests.lab.transcript import KEPT_CHARACTERS, Transcript


def transcript_of(*blocks: bytes) -> Transcript:
    transcript = Transcript(threading.Condition())
    reading, writing = os.pipe()
    reader = transcript.follow(reading)
    for block in blocks:
        os.write(writing, block)
    os.close(writing)
    reader.join(5)
    return transcript


def test_half_a_character_waits_for_its_other_half() -> None:
    assert transcript_of(b"caf\xc3", b"\xa9").text == "café"


def test_junk_bytes_are_replaced() -> None:
    assert transcript_of(b"\xff!").text == "\ufffd!"


def test_only_the_end_is_kept() -> None:
    block = b"x" * 60_000
    transcript = transcript_of(*[block] * 6, b"last")
    assert len(transcript.text) == KEPT_CHARACTERS
    assert transcript.text.endswith("xlast")


def test_ends_of_lines_match() -> None:
    transcript = transcript_of(b"one\ntwo\nthree\n")
    assert transcript.search(r"^two$")
    assert not transcript.search(r"^tw$")


def test_end_of_stream_is_known() -> None:
    assert transcript_of(b"").ended
