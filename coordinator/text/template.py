"""Renders a chat template; runs in a text child, see `coordinator.text.child`.

A template is a program from a model file. Jinja's sandbox keeps it from reaching Python's objects, but not from
running for ever or filling the memory, which is why it runs in that process.

The environment is that of `transformers` (utils/chat_template_utils.py), which is what templates are written for.
"""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Iterable
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import jinja2.utils
from jinja2.exceptions import SecurityError

MAX_TEXT_BYTES = 4 << 20


class RefusedError(jinja2.TemplateError):
    """The template called raise_exception."""


class TooLongError(Exception):
    """The rendered text passed its limit."""


class GenerationTag(jinja2.ext.Extension):
    """{% generation %}…{% endgeneration %} marks the assistant's text for training; here it is just its body.

    What is set between the tags is not known after them, as in `transformers`.
    """

    tags = {"generation"}  # noqa: RUF012  # jinja declares it as an instance's

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """The statements between the tags."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class TemplateNamespace(jinja2.utils.Namespace):
    """`namespace()` without underscored names, which lead to Python's internals."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"a template may not set {name!r}")
        super().__setitem__(name, value)


def namespace(*args: Any, **kwargs: Any) -> TemplateNamespace:
    """A `TemplateNamespace` with these names in it."""
    space = TemplateNamespace()
    for name, value in dict(*args, **kwargs).items():
        space[name] = value
    return space


class TemplateDict:
    """`dict(…)` and `dict.fromkeys(…)`, and nothing else of Python's type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        """A dictionary of these."""
        return dict(*args, **kwargs)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        """A dictionary with these keys and one value."""
        return dict.fromkeys(keys, value)


def raise_exception(message: str) -> None:
    """What templates call on a conversation that they do not support."""
    raise RefusedError(message)


def strftime_now(form: str) -> str:
    """The local time in the given form."""
    return datetime.datetime.now().strftime(form)


def to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON without the HTML escapes of jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.lru_cache(maxsize=4)
def compiled(source: str) -> jinja2.Template:
    """The compiled template; TemplateSyntaxError if it is not one."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, GenerationTag]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = strftime_now
    environment.globals["namespace"] = namespace
    environment.globals["dict"] = TemplateDict()
    return environment.from_string(source)


def render(request: dict[str, Any]) -> str:
    """The text of {template, messages, bos_token, eos_token, add_generation_prompt, tools, variables}.

    `tools` are JSON schemas, or None; `variables` are what else this template knows, `enable_thinking` say.
    TooLongError as soon as it is over `MAX_TEXT_BYTES`; UnicodeEncodeError if the template makes half a character.
    """
    template = compiled(request["template"])
    names = {name: request[name] for name in ("messages", "bos_token", "eos_token", "add_generation_prompt", "tools")}
    pieces: list[str] = []
    size_bytes = 0
    for piece in template.generate({"documents": None, **request["variables"], **names}):
        size_bytes += len(piece.encode())
        if size_bytes > MAX_TEXT_BYTES:
            raise TooLongError
        pieces.append(piece)
    return "".join(pieces)


def render_answer(request: dict[str, Any]) -> dict[str, str]:
    """{"text": …}, or {"error": KIND, "reason": …} with the kinds of `coordinator.text.chat_template`."""
    try:
        return {"text": render(request)}
    except RefusedError as error:
        return {"error": "refused", "reason": str(error)}
    except jinja2.TemplateSyntaxError as error:
        return {"error": "broken", "reason": f"{error.message} (line {error.lineno})"}
    except SecurityError as error:
        return {"error": "unsafe", "reason": str(error)}
    except UnicodeEncodeError:
        return {"error": "broken", "reason": "it makes half a character (a lone surrogate)"}
    except TooLongError:
        return {"error": "too_long", "reason": f"more than {MAX_TEXT_BYTES >> 20} MiB"}
    except (MemoryError, RecursionError) as error:
        return {"error": "limit", "reason": "memory" if isinstance(error, MemoryError) else "nesting"}
    except Exception as error:  # noqa: BLE001  # a template can raise whatever Python can
        return {"error": "failed", "reason": f"{type(error).__name__}: {error}"[:500]}
