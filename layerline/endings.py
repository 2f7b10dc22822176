"""What ends a task or a call without being its failure: it is given up, or the process ends.

The top of a task and the RPC boundary raise these again, and turn whatever else there is into an error for who waits.
"""

from __future__ import annotations

import asyncio

NOT_FAILURES = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)


def task_is_cancelled() -> bool:
    """Whether a CancelledError here is for this task, and not only for something that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
