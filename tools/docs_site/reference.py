"""Pages of the reference that are made from the tables of commands and of routes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from sfumato.cli.main import cli
from sfumato.wire.verb_table import VERBS


def reference_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page that is made from the tables of the code."""
    yield "commands", "# Commands\n\n" + "\n".join(_commands()) + "\n"
    yield "routes", "# HTTP\n\n" + "\n".join(_routes()) + "\n"


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


def _routes() -> Iterator[str]:
    yield "All of it, with every shape, is `/openapi.json` of a running service. Who may: the"
    yield "action that a token has to be for; *all* means that nobody is asked who they are.\n"
    yield "| route | what it does | who may | refusals of its own |\n| --- | --- | --- | --- |"
    for route in VERBS:
        codes = ", ".join(f"[{code}](codes/{code}.md)" for code in route.refusals)
        who = route.action or "*all*"
        yield f"| `{route.method} {route.path}` | {_cell(route.summary)} | {who} | {codes} |"


def _plain(text: str | None) -> str:
    """Return a docstring as one paragraph, whose `code` stays code."""
    return " ".join((text or "").replace("\b", "").split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
