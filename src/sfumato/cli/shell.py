"""What all commands share: opening the vault, printing, and exit codes of refusals."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from sfumato.client.text_tables import printable
from sfumato.dp.refusal import Refused
from sfumato.wire.query_json import Json, refusal_shape

if TYPE_CHECKING:
    from sfumato.features.anonymization import Anonymity

REFUSED, FAULT = 3, 70
F = TypeVar("F", bound=Callable[..., Any])  # Any: click's callbacks take any options


class App(Protocol):
    """The interface of the app that the command line calls.

    The command line itself constructs no services.
    """

    def create(  # noqa: PLR0913  # the options of `init`
        self,
        folder: str,
        *,
        anchor: str | None = None,
        ledger: str | None = None,
        engine: str | None = None,
        engine_reader: str | None = None,
        sandbox: str | None = None,
        at_rest_key: str | None = None,
    ) -> None:
        """Create a new vault in a folder."""
        ...

    def change_key(self, root: Path, old: str | None, new: str) -> None:
        """Encrypt a vault's encryption key under another key of the owner."""
        ...

    def connect(self, url: str, *, token: str) -> Any:  # Any: the client's vault
        """Connect to a vault that a service offers over HTTP."""
        ...

    def open(
        self, folder: str, *, user: str = "owner", connections: Mapping[str, str] | None = None
    ) -> Any:  # Any: the app's own vault
        """Open the vault in a folder, as this user."""
        ...

    def serve(
        self, folder: str, *, ledger: str | None, say: Callable[[str], None], **how: Any
    ) -> None:  # Any: see cli/serve.py
        """Serve a vault over HTTP until stopped."""
        ...

    def serve_lab(self, port: int, say: Callable[[str], None]) -> None:
        """Serve the lab's pages to this machine until stopped."""
        ...

    def federation(
        self, agreement: str, *, key: str, sites: Mapping[str, Any], heard: Callable[[Any], None]
    ) -> Any:  # Any: the client's vaults, and the progress of a round
        """Return a federation: several sites that are queried together."""
        ...

    def new_agreement(self, name: str, **words: Any) -> Json:  # Any: see app/federation.py
        """Return a new federation agreement for the sites' owners to join, with default terms."""
        ...

    def new_convener(self, path: str) -> str:
        """Write a new secret key for a federation's convener to a file; return the public key."""
        ...

    def federate_demo(self, folder: str, sites: int, say: Callable[[str], None]) -> Any:
        """Start sites on this machine, query them together, kill one, and return the results."""
        ...

    def anonymity(self) -> Anonymity:
        """Return the service that measures and recodes an owner's own files (k-anonymity)."""
        ...

    def try_program(
        self, text: str | Json, data: str | Json, outputs: Sequence[Json], **how: Any
    ) -> Json:  # Any: see app/local_trial.py
        """Run a program in a sandbox of this machine, on local data; return the result."""
        ...

    def draw(self, count: int) -> bytes:
        """Return `count` fresh random bytes."""
        ...

    def checkup(self, folder: str | None) -> list[tuple[str, bool, str, str | None]]:
        """Return the checks of `doctor`: name, whether it is ok, finding, and how to install it."""
        ...


@dataclass(frozen=True)
class Shell:
    """The options that every command has, and the methods that all commands use."""

    app: App
    vault: str | None
    user: str
    as_json: bool

    @property
    def is_remote(self) -> bool:
        """Return True if --vault names a service, not a folder."""
        return (self.vault or "").startswith(("http://", "https://"))

    @property
    def named(self) -> str:
        """Return the --vault option to append to a printed command; "" if it isn't needed."""
        if self.vault is None or self.vault == os.environ.get("SFUMATO_VAULT"):
            return ""
        return f" --vault {shlex.quote(self.vault)}"

    def address(self, path: str) -> str:
        """Return the URL of a page of the service; for a folder vault, the path and a hint."""
        at = (self.vault or "").rstrip("/")
        return f"{at}{path}" if self.is_remote else f"{path} at the service's address"

    def open(self, connections: tuple[tuple[str, str], ...] = ()) -> Any:
        """Open the vault that --vault names, as a folder or over HTTP; refuse if it names none."""
        from sfumato.cli.token_file import token_for

        if self.vault is None:
            raise Refused(
                "vault-missing",
                "No vault was named.",
                "Give --vault DIR, or set SFUMATO_VAULT. `sfumato init DIR` creates a vault.",
            )
        if self.is_remote:
            if connections:
                raise Refused(
                    "not-allowed",
                    "--connection works only if --vault names a folder. A service uses the "
                    "connections that its operator set up.",
                    "Leave --connection out.",
                )
            return self.app.connect(self.vault, token=token_for(self.vault))
        return self.app.open(self.vault, user=self.user, connections=dict(connections))

    def open_folder(self) -> Any:
        """Open the vault of --vault as a folder; refuse a service."""
        if self.is_remote:
            raise Refused(
                "not-allowed",
                "This command needs the vault's folder.",
                "Run it on the service's machine with --vault DIR, or use the console.",
            )
        return self.open()

    def show(self, shape: Mapping[str, object], lines: str) -> None:
        """Print one JSON object, or text lines without terminal control characters.

        Questions, names and programs are untrusted text, so unprintable characters are escaped.
        """
        click.echo(json.dumps(shape) if self.as_json else readable(lines))

    def refuse(self, refused: Refused) -> None:
        """Print the refusal: JSON to standard output, text to standard error."""
        if self.as_json:
            click.echo(json.dumps(refusal_shape(refused)))
        else:
            lines = f"Refused ({refused.code}): {refused.cause}\n  {refused.next_step}"
            click.echo(readable(lines), err=True)


def readable(text: str) -> str:
    """Return text for a terminal: unprintable characters are escaped."""
    return "\n".join(printable(line.expandtabs()) for line in text.split("\n"))


def command(function: F) -> F:
    """Add the options --vault, --user and --json to a command; exit with status 3 if refused."""

    @click.option(
        "--vault",
        metavar="DIR|URL",
        help="The vault's folder, or the address of its service (SFUMATO_VAULT).",
    )
    @click.option("--user", metavar="NAME", help="Ask as this user (or SFUMATO_USER).")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    @click.pass_context
    @wraps(function)
    def wrapped(
        context: click.Context,
        /,
        vault: str | None,
        user: str | None,
        as_json: bool,
        **options: object,
    ) -> None:
        base: Shell = context.obj
        shell = Shell(base.app, vault or base.vault, user or base.user, as_json or base.as_json)
        try:
            function(shell, **options)
            return
        except Refused as refused:
            shell.refuse(refused)
        context.exit(REFUSED)

    return wrapped  # type: ignore[return-value]  # the decorators keep the callback's options


at_rest_key: Final = click.option(
    "--at-rest-key",
    metavar="FILE|command:...",
    envvar="SFUMATO_AT_REST_KEY",
    help="The key that encrypts the rows: a file outside the vault, or `command:` and a command "
    "that prints it.",
)


def number(text: str, name: str) -> Any:
    """Parse a typed number exactly; refuse other text, with the option's name."""
    from sfumato.dp.budget import decimal_of

    return decimal_of(text, name)


def text_of(path: str) -> str:
    """Return the text of a file; refuse a file that is not UTF-8."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    raise Refused("bad-request", f"{path} cannot be read as text.", "Give a file of UTF-8 text.")


def pairs_of(pairs: tuple[str, ...], option: str) -> Json | None:
    """Parse COLUMN=X options into a mapping from column to number."""
    if not pairs:
        return None
    read = [pair.rpartition("=") for pair in pairs]
    for column, sign, _ in read:
        if not sign or not column:
            raise click.BadParameter("write COLUMN=X", param_hint=f"--{option}")
    return {column: number(text, f"{option} of {column}") for column, _, text in read}


def connections_of(pairs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Parse NAME=FILE options into pairs of a name and an absolute path."""
    read = [pair.partition("=") for pair in pairs]
    if any(not name or not path for name, _, path in read):
        raise click.BadParameter("write NAME=FILE", param_hint="--connection")
    return tuple((name, str(Path(path).absolute())) for name, _, path in read)


@dataclass
class Progress:
    """The description of running work that `show_elapsed` prints with the elapsed time.

    The description may change only in ways that do not depend on private rows.
    """

    what: str


_BAR: Final = 20  # the letters of a bar


def elapsed_line(what: str, spent: float, planned_s: int | None) -> str:
    """Return a line that says how much time has passed, with a bar if a time is planned."""
    if not planned_s:
        return f"{what}: {spent:.0f} s elapsed ..."
    full = min(_BAR, int(_BAR * spent / planned_s))
    bar = "#" * full + "." * (_BAR - full)
    return f"{what}: [{bar}] {spent:.0f} of {planned_s} s planned ..."


@contextmanager
def show_elapsed(what: str, planned_s: int | None = None) -> Iterator[Progress]:
    """Print the elapsed time on standard error while the work of the block runs.

    If the work takes a planned time, print how much of it has passed.
    """
    done, doing = threading.Event(), Progress(what)

    def tell() -> None:
        start, pause = time.monotonic(), 1.0
        while not done.wait(pause):
            spent = time.monotonic() - start
            print(elapsed_line(doing.what, spent, planned_s), file=sys.stderr, flush=True)
            pause = min(2 * pause, 30.0)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield doing
    finally:
        done.set()
        teller.join()
