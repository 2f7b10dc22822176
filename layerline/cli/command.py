"""How commands behave on the command line: loaded when named, -v everywhere, failures in one sentence.

Knows click and no command in particular.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from layerline.cli.failures import exit_code_of, sentence_of
from layerline.cli.own_packages import require_own_packages
from layerline.cli.verbosity import Verbosity
from layerline.printable import printable_lines

COMMANDS_PACKAGE = "layerline.cli.commands"


def _turn_on(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Verbosity).on = True


def verbose_option() -> click.Option:
    """-v, which is accepted before and after the name of the command."""
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        expose_value=False,
        callback=_turn_on,
        help="Show the log, and where a bug is, on standard error.",
    )


class Command(click.Command):
    """A command with -v and with an epilog whose lines stay as they were written."""

    def __init__(self, name: str, *, params: Sequence[click.Parameter], daemon: bool = False, **settings: Any) -> None:
        super().__init__(name, params=[*params, verbose_option()], **settings)
        self._daemon = daemon

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command once the log is as -v says."""
        ctx.ensure_object(Verbosity).apply(daemon=self._daemon)
        return super().invoke(ctx)

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes examples as they are, since a broken line is no command."""
        _write_as_is(self.epilog, formatter)


class Program(click.Group):
    """The root command. `summaries` are its commands, whose modules are loaded when they are named."""

    def __init__(self, name: str, *, summaries: Mapping[str, str], **settings: Any) -> None:
        super().__init__(name, **settings)
        self._summaries = summaries

    def list_commands(self, _: click.Context) -> list[str]:
        """The names, in the order in which one meets them."""
        return list(self._summaries)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, loaded now."""
        if cmd_name not in self._summaries:
            return None
        command: click.Command = getattr(importlib.import_module(f"{COMMANDS_PACKAGE}.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments begin with; the nearest one is named if there is none."""
        name = args[0]
        if name not in self._summaries and not name.startswith("-"):
            near = difflib.get_close_matches(name, self._summaries, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries.items()))

    def format_epilog(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table as it is."""
        _write_as_is(self.epilog, formatter)

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Runs the command line and ends the process."""
        sys.exit(self.run(list(sys.argv[1:] if args is None else args)))

    def run(self, arguments: list[str]) -> int:
        """Runs the command line; returns the exit code, after telling a failure in one sentence."""
        verbosity = Verbosity()
        try:
            require_own_packages()
            with self.make_context("layerline", arguments or ["--help"], obj=verbosity) as context:
                self.invoke(context)
                sys.stdout.flush()
        except click.exceptions.Exit as leaving:
            return leaving.exit_code
        except (Exception, KeyboardInterrupt) as failure:  # noqa: BLE001 - the top of the program
            return _tell(failure, verbosity)
        return 0


def _tell(failure: BaseException, verbosity: Verbosity) -> int:
    if isinstance(failure, BrokenPipeError):
        _stop_writing()
    elif verbosity.on:
        traceback.print_exception(failure)
    if sentence := sentence_of(failure):
        print(f"layerline: error: {printable_lines(sentence)}", file=sys.stderr)
    return exit_code_of(failure)


def _stop_writing() -> None:
    """Nobody reads any more, so what is still in the buffers must not fail once more when Python ends."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _write_as_is(epilog: str | None, formatter: click.HelpFormatter) -> None:
    if epilog:
        formatter.write_paragraph()
        formatter.write(epilog.strip("\n") + "\n")
