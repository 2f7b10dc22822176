"""Options of `layerline coordinator` that are about HTTP, and what they make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from layerline.addresses import split_address
from layerline.errors import UsageError

if TYPE_CHECKING:
    from coordinator.http_settings import HttpSettings

OFF = "off"
DEFAULT = "127.0.0.1:7380"
DEFAULT_DRAIN_S = 10.0
MAX_DRAIN_S = 3600.0
MAX_TEMPLATE_BYTES = 1 << 20


class HttpAddressType(click.ParamType[str]):
    """HOST:PORT or "off"."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The address as it was given, checked."""
        if value != OFF:
            try:
                split_address(str(value))
            except ValueError as error:
                self.fail(f"{error}; or give `{OFF}`.", param, ctx)
        return str(value)


class OriginType(click.ParamType[str]):
    """scheme://host[:port], as browsers name a page's origin."""

    name = "ORIGIN"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The origin."""
        parts = urlsplit(str(value))
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query:
            self.fail(f"{value!r} is no origin, as https://example.org is.", param, ctx)
        return str(value)


def http_options() -> list[click.Parameter]:
    """Where HTTP is served, for whom, and how it ends."""
    return [
        click.Option(
            ["--http"],
            type=HttpAddressType(),
            help="Serve the HTTP API, metrics and the page there. "
            f"[default: {DEFAULT}, which only programs of this machine reach; `{OFF}`: nowhere]",
        ),
        click.Option(
            ["--api-key-file"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Answer over HTTP only who gives one of the keys in FILE, one on each line.",
        ),
        click.Option(["--http-open"], is_flag=True, help="Answer everybody who reaches --http, without a key."),
        click.Option(
            ["--http-name", "http_names"],
            multiple=True,
            metavar="NAME",
            help="Another host name under which --http is reached, as behind a proxy; may be repeated.",
        ),
        click.Option(
            ["--cors", "origins"],
            type=OriginType(),
            multiple=True,
            help="Let pages of this origin call the API; may be repeated. [default: none]",
        ),
        click.Option(["--http-cert"], metavar="FILE", help="Speak TLS with this certificate (PEM, with its chain)."),
        click.Option(["--http-key"], metavar="FILE", help="The key of --http-cert (PEM)."),
        click.Option(
            ["--drain"],
            type=click.FloatRange(0, MAX_DRAIN_S),
            default=DEFAULT_DRAIN_S,
            show_default=True,
            metavar="SECONDS",
            help="When told to end, let what is being answered go on for so long.",
        ),
        click.Option(
            ["--chat-template"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Write chats by this template (Jinja) in place of the model's own.",
        ),
    ]


def http_settings_of(given: Mapping[str, Any]) -> HttpSettings | None:
    """Where HTTP is served, out of what was given; None for nowhere."""
    from coordinator.http_settings import HttpSettings, read_keys  # noqa: PLC0415 - help must not load it

    address = given["http"] or DEFAULT
    if address == OFF:
        if given["api_key_file"] or given["http_open"] or given["http_cert"] or given["origins"] or given["http_names"]:
            raise UsageError("--http off leaves nothing that the other options of HTTP could be for.")
        return None
    host, port = split_address(address)
    return HttpSettings(
        host=host,
        port=port,
        keys=read_keys(given["api_key_file"]) if given["api_key_file"] else (),
        open=given["http_open"],
        names=given["http_names"],
        origins=given["origins"],
        cert=given["http_cert"] or "",
        cert_key=given["http_key"] or "",
        chosen=given["http"] is not None,
    )


def chat_template_of(path: Path | None) -> str:
    """The template in a file, "" for none; UsageError for a file that has none."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(f"--chat-template {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise UsageError(f"--chat-template {path} is not UTF-8 text.") from None
    if not text.strip() or len(data) > MAX_TEMPLATE_BYTES:
        raise UsageError(f"--chat-template {path} is empty, or has over {MAX_TEMPLATE_BYTES >> 20} MiB.")
    return text
