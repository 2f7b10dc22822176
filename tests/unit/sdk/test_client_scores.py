"""The client scores texts: windows as they come, and an end that is said."""

from __future__ import annotations

import pytest

from layerline.client import Client
from layerline.errors import ProtocolError
from tests.fakes.coordinator_service import SCORES, FakeCoordinator


def test_the_scores_of_a_text_come_window_by_window(client: Client, fake: FakeCoordinator) -> None:
    with client.score("Once", model="tiny", window_tokens=4) as windows:
        assert [windows.finished] == [None]
        assert tuple(windows) == SCORES[:2]
        assert windows.finished == SCORES[2]
    list(client.score(token_ids=[5, 6]))
    assert [(asked.text, asked.token_ids, asked.window_tokens) for asked in fake.scored] == [
        ("Once", None, 4),
        (None, (5, 6), 512),
    ]
    assert fake.scored[0].model == "tiny"


def test_scores_that_end_without_saying_so_are_refused(client: Client, fake: FakeCoordinator) -> None:
    fake.scores = SCORES[:2]
    with pytest.raises(ProtocolError, match="without finishing"):
        list(client.score("Once"))
