"""Failures as the command tells them: one sentence on standard error, and an exit code."""

from __future__ import annotations

import re

import click

from layerline.cli.exit_codes import INTERRUPTED, OUTPUT_CLOSED
from layerline.errors import InternalError, LayerlineError, UsageError


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
    return f"Something broke inside layerline ({failure!r}). Please report it, with what -v shows."


def _told(error: LayerlineError) -> str:
    text = str(error)
    named = re.search(rf"\bnode {re.escape(error.node)}(?!\w)", text, re.IGNORECASE)
    return f"{text} (Node {error.node}.)" if error.node and not named else text


def _where_to_read(failure: click.UsageError) -> str:
    return f"Read `{failure.ctx.command_path} --help`." if failure.ctx else ""
