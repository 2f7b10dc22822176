"""Failures as the command tells them: one sentence on standard error, and an exit code."""

from __future__ import annotations

import errno
import os
import re

import click

from layerline.cli.exit_codes import INTERRUPTED, OUTPUT_CLOSED, SYSTEM_REFUSED
from layerline.errors import InternalError, LayerlineError, UsageError

_FULL = "Free space where the output goes, or in the folder for temporary files; TMPDIR chooses another."
_SYSTEM_REFUSALS = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: "Choose a place that can be written to; TMPDIR chooses the folder for temporary files.",
    errno.EACCES: "Let the user that runs this use it; TMPDIR chooses the folder for temporary files.",
    errno.EPERM: "Let the user that runs this use it; TMPDIR chooses the folder for temporary files.",
    errno.EIO: "Check the disk or the terminal.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Close other programs: the machine has too many open files.",
    errno.ENOMEM: "Free memory, or raise the limit of this process.",
}  # what the system may refuse anybody, and what to do about it


def exit_code_of(failure: BaseException) -> int:
    """What the command ends with after `failure`."""
    if isinstance(failure, LayerlineError):
        return failure.exit_code
    if isinstance(failure, click.ClickException):
        return UsageError.exit_code
    if isinstance(failure, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(failure, BrokenPipeError):
        return OUTPUT_CLOSED
    if isinstance(failure, OSError) and failure.errno in _SYSTEM_REFUSALS:
        return SYSTEM_REFUSED
    return InternalError.exit_code


def sentence_of(failure: BaseException) -> str:
    """What to say of `failure`, empty if nothing need be said."""
    if isinstance(failure, KeyboardInterrupt | click.Abort | BrokenPipeError):
        return ""
    if isinstance(failure, LayerlineError):
        return _told(failure)
    if isinstance(failure, click.UsageError):
        return f"{failure.format_message()} {_where_to_read(failure)}".strip()
    if isinstance(failure, click.ClickException):
        return failure.format_message()
    if isinstance(failure, OSError) and failure.errno in _SYSTEM_REFUSALS:
        place = f" ({os.fsdecode(failure.filename)})" if isinstance(failure.filename, str | bytes) else ""
        return f"{failure.strerror}{place}. {_SYSTEM_REFUSALS[failure.errno]}"
    return f"Something broke inside layerline ({failure!r}). Please report it, with what -v shows."


def _told(error: LayerlineError) -> str:
    text = str(error)
    named = re.search(rf"\bnode {re.escape(error.node)}(?!\w)", text, re.IGNORECASE)
    return f"{text} (Node {error.node}.)" if error.node and not named else text


def _where_to_read(failure: click.UsageError) -> str:
    return f"Read `{failure.ctx.command_path} --help`." if failure.ctx else ""
