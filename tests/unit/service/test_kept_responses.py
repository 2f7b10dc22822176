"""Responses are kept for an hour, and no more of them than memory is meant for."""

from __future__ import annotations

import pytest

from coordinator.http import kept_responses
from coordinator.http.kept_responses import KeptResponses
from layerline.chat import Message, ToolCall


def turns(letters: int) -> tuple[Message, ...]:
    return (Message(role="user", content="a" * letters),)


def test_one_is_found_until_it_is_forgotten() -> None:
    kept = KeptResponses()
    kept.keep({"id": "r1"}, turns(3))
    found = kept.get("r1")
    assert found is not None
    assert found.turns == turns(3)
    assert kept.forget("r1")
    assert not kept.forget("r1")
    assert kept.get("r1") is None


def test_the_oldest_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_responses, "MAX_RESPONSES", 2)
    kept = KeptResponses()
    for number in range(4):
        kept.keep({"id": f"r{number}"}, turns(1))
    assert [kept.get(f"r{number}") is not None for number in range(4)] == [False, False, True, True]


def test_the_oldest_go_where_they_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_responses, "MAX_BYTES", 2000)
    kept = KeptResponses()
    kept.keep({"id": "r0"}, turns(1000))
    kept.keep({"id": "r1"}, turns(1000))
    assert kept.get("r0") is None
    assert kept.get("r1") is not None
    kept.keep({"id": "r2"}, turns(5000))
    assert kept.get("r2") is not None, "one alone may be longer"


def test_after_an_hour_one_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    kept = KeptResponses()
    kept.keep({"id": "r0"}, turns(1))
    now_s += 3599
    assert kept.get("r0") is not None
    now_s += 2
    assert kept.get("r0") is None


def test_all_that_is_told_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_responses, "MAX_BYTES", 5000)
    kept = KeptResponses()
    kept.keep({"id": "r0", "metadata": {"a": "b" * 4000}}, turns(1))
    kept.keep({"id": "r1"}, (Message(role="assistant", tool_calls=(ToolCall(id="", name="f", arguments="a" * 900),)),))
    assert kept.get("r0") is None
    assert kept.get("r1") is not None
