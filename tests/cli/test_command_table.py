"""What is said of a command before it is loaded is what it says itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click

import sfumato.cli
from sfumato.cli.command_table import LISTED
from sfumato.cli.main import cli

HEAVY = {"numpy", "duckdb", "sqlglot", "cryptography", "sfumato.app.vault", "sfumato.release"}


def listed() -> dict[str, str]:
    return {name: says for group in LISTED.values() for name, (_, says) in group.items()}


def test_every_command_says_of_itself_what_the_list_says() -> None:
    context = click.Context(cli)
    for name, says in listed().items():
        command = cli.get_command(context, name)
        assert command is not None, name
        assert command.get_short_help_str(200) == says, name


def test_no_command_is_left_out_of_the_list() -> None:
    folder = Path(sfumato.__file__).parent
    paths = (*folder.glob("cli/*.py"), *folder.glob("features/*/*cli.py"))
    names = [".".join(path.relative_to(folder).with_suffix("").parts) for path in paths]
    modules = [import_module(f"sfumato.{name.removesuffix('.__init__')}") for name in names]
    found = {each.name for module in modules for each in getattr(module, "COMMANDS", ())}
    assert found == set(listed())
    assert sum(len(group) for group in LISTED.values()) == len(found), "under two headings"


def test_what_keeps_a_service_holds_none_of_what_it_starts() -> None:
    program = "import sys, sfumato.app.command_line; sys.argv = ['sfumato', '--help']; "
    program += "sfumato.app.command_line.main(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "sfumato.app.processes" in loaded
    assert not loaded & HEAVY


def test_an_edge_holds_neither_door_nor_engine() -> None:
    program = (
        "import sys, uvicorn, sfumato.server.http.edge_app, sfumato.server.http.connection_limits, "
    )
    program += (
        "sfumato.server.http.tls_event_loop, sfumato.server.ipc.edge_client; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "sfumato.server.console" in loaded
    assert not loaded & {*HEAVY, "sfumato.server.dispatch", "sfumato.query.plan", "sfumato.engines"}
