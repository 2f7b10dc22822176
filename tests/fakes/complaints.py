"""What was logged in a test, but for what gRPC says of the event loops of earlier ones."""

from __future__ import annotations

import logging

import pytest

# One completion queue serves all event loops of a process, so that the end of a call whose loop has been closed since
# is told to the loop of whichever test runs then.
OF_EARLIER_LOOPS = "PollerCompletionQueue._handle_events"


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The records of the test itself."""
    return [record for record in caplog.records if OF_EARLIER_LOOPS not in record.getMessage()]
