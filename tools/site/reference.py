"""The reference, from the code itself: commands, the Python client, routes, refusals."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import click

import sfumato
from sfumato import client
from sfumato.cli.main import cli
from sfumato.dp.refusal import CODES
from sfumato.wire.verb_table import ROUTES
from tools.site.pages import Page


def reference_pages() -> Iterator[Page]:
    """Yield the pages that are made from the code."""
    for name, title, lines in (
        ("commands", "Commands", _commands()),
        ("python", "Python", _python()),
        ("routes", "HTTP", _routes()),
        ("refusals", "Refusals in one table", _refusals()),
    ):
        text = f"# {title}\n\n" + "\n".join(lines) + "\n"
        yield Page(f"docs/reference/{name}.md", f"reference/{name}.html", "Reference", text)


def _commands() -> Iterator[str]:
    yield "Every command takes `--vault`, `--user` and `--json`, and ends with 0, with 2 (wrong"
    yield "usage), 3 (refused, with a code) or 70 (a fault of ours).\n"
    for words, command in _walk(("sfumato",), cli):
        context = click.Context(command, info_name=" ".join(words))
        pieces = " ".join(command.collect_usage_pieces(context))
        yield f"## {' '.join(words)}\n\n`{' '.join(words)} {pieces}`\n\n{_plain(command.help)}\n"
        rows = [
            record
            for parameter in command.get_params(context)
            if (record := parameter.get_help_record(context)) is not None
            and not {"--help", "--vault", "--user", "--json"} & set(parameter.opts)
        ]
        if rows:
            yield "| option | what it does |\n| --- | --- |"
            yield from (f"| `{_cell(name)}` | {_cell(text)} |" for name, text in rows)
            yield ""


def _walk(
    words: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            found = command.get_command(context, name)
            if found is not None:
                yield from _walk((*words, name), found)
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield words, command


def _python() -> Iterator[str]:
    yield "What `import sfumato` gives, and the objects that it hands out.\n"
    yield "## sfumato\n"
    for name in sfumato.__all__:
        yield from _described(f"sfumato.{name}", getattr(sfumato, name))
    for name in client.__all__:
        kind = getattr(client, name)
        if not inspect.isclass(kind) or name == "Transport":
            continue
        yield f"## {name}\n\n{_plain(inspect.getdoc(kind))}\n"
        for own, member in sorted(_members(kind).items(), key=lambda one: one[0]):
            yield from _described(f"{name}.{own}", member)


def _members(kind: type) -> dict[str, Any]:
    """Return what a class and those that it is made of show, each as the nearest has it."""
    found: dict[str, Any] = {}
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            is_shown = base.__module__.startswith("sfumato.") and not name.startswith("_")
            is_member = inspect.isroutine(member) or isinstance(member, property)
            if is_shown and is_member and inspect.getdoc(member):
                found.setdefault(name, member)
    return found


def _described(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, property) or inspect.isclass(thing) or isinstance(thing, str):
        yield f"- `{name}`: {_plain(_VERSION if isinstance(thing, str) else inspect.getdoc(thing))}"
        return
    plain = thing.__func__ if isinstance(thing, classmethod) else thing
    text = re.sub(r"'([\w.\[\], |]+)'", r"\1", str(inspect.signature(plain)))
    text = re.sub(r"\((self|cls)(, )?", "(", text)
    summary, *sections = _SECTION.split(inspect.getdoc(thing) or "")
    yield f"- `{name}{text}`: {_plain(summary)}"
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        if title == "Args":
            yield from (f"  - `{arg}`: {_plain(says)}" for arg, says in _ARGUMENT.findall(body))
        else:
            yield f"  - *{title}*: {_plain(body)}"


_VERSION: Final = "The version of the package."
_SECTION: Final = re.compile(r"^(Args|Returns|Yields|Raises):\n", re.M)
_ARGUMENT: Final = re.compile(r"^ {4}([*\w]+): ((?:.*\n)(?: {8}.*\n?)*)", re.M)


def _routes() -> Iterator[str]:
    yield "All of it, with every shape, is `/openapi.json` of a running service. Who may: the"
    yield "action that a token has to be for; *all* means that nobody is asked who they are.\n"
    yield "| route | what it does | who may | refusals of its own |\n| --- | --- | --- | --- |"
    for route in ROUTES:
        codes = ", ".join(f"[{code}](site:../codes/{code}.html)" for code in route.refusals)
        who = route.action or "*all*"
        yield f"| `{route.method} {route.path}` | {_cell(route.summary)} | {who} | {codes} |"


def _refusals() -> Iterator[str]:
    yield "A refusal has a code, a cause and a next step. Each code has a page.\n"
    yield "| code | what it means |\n| --- | --- |"
    for code in sorted(CODES):
        yield f"| [{code}](site:../codes/{code}.html) | {_cell(CODES[code])} |"


def _plain(text: str | None) -> str:
    """Return a docstring as one paragraph, whose `code` stays code."""
    return " ".join((text or "").replace("\b", "").split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
