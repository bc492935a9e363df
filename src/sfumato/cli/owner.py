"""The owner's commands: make a vault, add data sets, enrol researchers."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sfumato.cli.bids_card_text import public_files
from sfumato.cli.export_card import STANDARDS, Publish, add_export, check_no_export
from sfumato.cli.guided_card import guided_card
from sfumato.cli.shell import Shell, at_rest_key, command, connections_of, show_elapsed
from sfumato.client.card_file import CardOrFile, card_of
from sfumato.dp.refusal import Refused
from sfumato.system.row_files import is_source
from sfumato.wire.connection_name import is_bucket, no_bucket_here, read_connection

if TYPE_CHECKING:
    from sfumato.client.owner import Added

_LOST: Final = "Keep a copy of it elsewhere. If you lose the key, you lose the rows."


@click.command("init")
@click.argument("folder", metavar="DIR")
@click.option("--anchor", metavar="PATH", help="The place of the anchor; by default outside DIR.")
@click.option("--ledger", metavar="URL", help="A PostgreSQL database that keeps the ledger.")
@click.option(
    "--engine",
    metavar="ADDRESS",
    envvar="SFUMATO_ENGINE",
    help="The engine, if not DuckDB: postgresql://..., local[N] or spark://:SECRET@HOST:PORT. Use "
    "SFUMATO_ENGINE instead to keep its secret out of process lists.",
)
@click.option(
    "--engine-reader",
    metavar="URL",
    envvar="SFUMATO_ENGINE_READER",
    help="The address of a PostgreSQL role that can only read; by default, sfumato makes one.",
)
@click.option(
    "--sandbox",
    metavar="NAME",
    help="The sandbox for submitted programs, if not bubblewrap: podman, docker:sha256:..., "
    "apptainer.",
)
@at_rest_key
@command
def init(shell: Shell, folder: str, **options: str | None) -> None:
    """Make a new vault in DIR."""
    shell.app.create(folder, **options)
    place, key = str(Path(folder).absolute()), options["at_rest_key"]
    sealed = f"The rows are encrypted with the key of {key}. {_LOST}\n" if key is not None else ""
    shell.show(
        {"vault": place} if key is None else {"vault": place, "at_rest_key": key},
        f"Made a vault in {place}.\n{sealed}"
        f"Next: sfumato add NAME SOURCE --vault {shlex.quote(folder)}",
    )


@click.command("change-key")
@click.argument("new", metavar="KEY")
@command
def change_key(shell: Shell, new: str) -> None:
    """Encrypt the vault with another KEY: a file (made if absent), or `command:` and a command.

    SFUMATO_AT_REST_KEY names the old key. The command does not encrypt the rows again. Anybody who
    has the old key and an old copy of keys/at-rest can still decrypt the vault.
    """
    if shell.vault is None or shell.is_remote:
        raise Refused("vault-missing", "The command needs the vault's folder.", "Give --vault DIR.")
    shell.app.change_key(Path(shell.vault).absolute(), None, new)
    shell.show({"at_rest_key": new}, f"The vault is now encrypted with the key of {new}. {_LOST}")


def confirmations(run: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes rows its options for what the vault would refuse."""
    accept = click.option(
        "--accept-unreadable",
        multiple=True,
        metavar="COLUMN",
        help="Count the column's unreadable cells as empty, however many there are. Repeatable.",
    )
    different = click.option(
        "--different-people",
        metavar="APPROVER",
        help="The second person who confirms that no other data set is about these people.",
    )
    return different(accept(run))


@click.command("add")
@click.argument("name")
@click.argument("source")
@click.option(
    "--connection",
    "connections",
    multiple=True,
    metavar="NAME=FILE",
    help="A database, or a place of DataLad data sets or of objects in an S3 bucket, to take rows "
    "from. Only for a vault in a folder; a service has its own connections.",
)
@click.option(
    "--card", type=click.Path(exists=True, dir_okay=False), help="The data card, a TOML file."
)
@click.option(
    "--table", help="The table or sheet to add, if SOURCE is a file that has several of them."
)
@click.option(
    "--with",
    "tables",
    multiple=True,
    metavar="TABLE=FILE",
    help="The file with the rows of another table of the card. Repeatable.",
)
@confirmations
@click.option(
    "--as",
    "standard",
    type=click.Choice(STANDARDS),
    help="SOURCE is an export in this standard, a folder or zip file: add it with a ready-made "
    "card.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Ask nothing: without --card, write the proposed card to a file; with --as, publish the "
    "ready-made card.",
)
@click.option(
    "--budget",
    metavar="EPSILON[,DELTA]",
    help="With --as: the people's privacy budget, for all answers together (DELTA: 1e-6).",
)
@click.option(
    "--years", metavar="FIRST-LAST", help="With --as: the years of dates, from knowledge."
)
@click.option(
    "--missing",
    multiple=True,
    metavar="CODE",
    help="With --as: a code that means a missing value, such as -99. Repeatable.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="TABLE",
    help="With --as: take this table, besides the people's. Repeatable.",
)
@command
def add(  # an owner's words
    shell: Shell, name: str, source: str, card: str | None, *, yes: bool, **options: Any
) -> None:
    """Add a data set or a new version, with its card; without --card, propose a card.

    At a terminal, three steps make the card: who is protected, how much may be learned, and what
    researchers see of each column. With --yes, or in a script, the card is written to a file.

    SOURCE is a file (CSV, TSV, JSON lines, Parquet, Arrow, Excel, SQLite, DuckDB, SPSS, Stata or
    SAS), a BIDS folder or its zip or tar file, or a table, file or folder of a connection:
    connection:NAME/SCHEMA.TABLE or connection:NAME/PATH. A vault in a folder also takes
    s3://BUCKET/PATH. If a service's folder upload is cut off,
    run the command again: it sends only what is missing.

    With --as, SOURCE is the folder or zip file of an export of OMOP CDM, FHIR or
    REDCap, or a BIDS folder of which only the tables are taken.
    """
    if options["standard"] is not None:
        add_export(
            shell,
            name,
            source,
            {**options, "card": card, "is_published": yes},
            _publisher(shell, name, options),
        )
        return
    check_no_export(options)
    _check_source(shell, source)
    if card is not None:
        _publish(shell, name, source, card, options)
    elif is_at_terminal(shell) and not yes and not options["tables"]:
        _ask_for_card(shell, name, source, options)
    else:
        with shell.open(connections_of(options["connections"])) as vault:
            guided_card(shell, vault, name, source, options["table"])


def _ask_for_card(shell: Shell, name: str, source: str, options: dict[str, Any]) -> None:
    """Ask for the card in three steps, and add the data set with it."""
    from sfumato.features.data_sets.card_dialog_cli import Target, add_by_dialog

    def opened() -> Any:
        return shell.open(connections_of(options["connections"]))

    def publish(card: Mapping[str, object]) -> None:
        _publish(shell, name, source, card, options)

    add_by_dialog(Target(shell, name, source, options["table"], opened, publish))


def is_at_terminal(shell: Shell) -> bool:
    """Return True if somebody can be asked: input and output are a terminal, without --json."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not shell.as_json


def _publish(
    shell: Shell, name: str, source: str, card: CardOrFile, options: dict[str, Any]
) -> None:
    """Add the data set with its card, and print what was added and its report."""
    with shell.open(connections_of(options["connections"])) as vault:
        with show_elapsed("Preparing the rows") as doing:
            if shell.is_remote:
                vault.say = lambda what: setattr(doing, "what", what)
            signed = vault.add(name, source, card, **_where(options))
        public = vault.call("card", {"data_set": signed.name})
    _show_added(shell, signed, public, card_of(card))


def _publisher(shell: Shell, name: str, options: dict[str, Any]) -> Publish:
    """Return a function that adds the tables of an export, and shows how they were read."""

    def publish(own: str, card: Mapping[str, Any], tables: Mapping[str, str]) -> None:
        with shell.open() as vault:
            where = {**_where({**options, "tables": ()}), "tables": tables}
            signed = vault.add(name, own, card, **where)
            public = vault.call("card", {"data_set": signed.name})
        _show_added(shell, signed, public, card)

    return publish


def _show_added(
    shell: Shell, signed: Added, public: Mapping[str, Any], card: Mapping[str, Any]
) -> None:
    """Print which version was added, what is public, and how the rows were read."""
    shell.show(
        {
            "added": signed.name,
            "version": signed.version,
            "people": signed.people,
            "report": None if signed.report is None else signed.report["tables"],
        },
        f"Added {signed.name}, version {signed.version}. Questions are charged to the people "
        f"{signed.people!r}.\n"
        + public_files(public, card)
        + ("" if signed.report is None else f"{signed.report}\n")
        + f"Next: sfumato price {signed.name} 'SELECT COUNT(*) FROM {signed.name}' --epsilon 0.1"
        f"{shell.named}",
    )


@click.command("append")
@click.argument("name")
@click.argument("source", required=False)
@click.option("--version", required=True, help="The name of the new version.")
@click.option(
    "--table", help="The table or sheet to read, if SOURCE is a file that has several of them."
)
@click.option(
    "--with",
    "tables",
    multiple=True,
    metavar="TABLE=FILE",
    help="The file with new rows of another table of the card. Repeatable.",
)
@confirmations
@command
def append(shell: Shell, name: str, source: str | None, version: str, **options: Any) -> None:
    """Append the rows of SOURCE to NAME, as a new version; only the new rows are prepared.

    The card stays, except for its version. The version has the rows of all versions so far and the
    same people, so answers over all versions share these people's privacy budget. Without SOURCE,
    only the tables named by --with get rows.
    """
    if source is not None:
        _check_source(shell, source)
    with shell.open() as vault:
        with show_elapsed("Preparing the new rows"):
            signed = vault.append(name, source, version=version, **_where(options))
        left = vault.call("budget", {"data_set": signed.name})
    shell.show(
        {
            "appended": signed.name,
            "version": signed.version,
            "people": signed.people,
            "report": None if signed.report is None else signed.report["tables"],
            "budget": left,
        },
        f"{signed.name} now has the version {signed.version}: all rows so far, and the new ones.\n"
        f"It has the same people {signed.people!r}, and their privacy budget stays as it is: what "
        "answers over earlier versions have spent is spent.\n"
        + ("" if signed.report is None else f"{signed.report}\n")
        + f"Next: sfumato budget {signed.name}{shell.named}",
    )


def _check_source(shell: Shell, source: str) -> None:
    """Refuse a source that is not an existing file, BIDS folder or connection table."""
    place = Path(source)
    if is_bucket(source):
        if shell.is_remote:
            raise no_bucket_here()
        return
    is_there = is_source(source) or (place / "participants.tsv").is_file()
    if read_connection(source) is None and not is_there:
        hint = f"; of an export, add --as {'|'.join(STANDARDS)}" if place.is_dir() else ""
        raise click.BadParameter(f"there is no file {source!r}{hint}", param_hint="SOURCE")


def _where(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `add` that say how to read the rows."""
    said = {
        "tables": _tables(options["tables"]),
        "different_people": options["different_people"],
        "accept_unreadable": options["accept_unreadable"],
    }
    return {**said, "inner_table": options["table"]}


def _tables(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse --with TABLE=FILE options into a mapping from table to file."""
    read = [pair.partition("=") for pair in pairs]
    if any(not name or not path for name, _, path in read):
        raise click.BadParameter("write TABLE=FILE", param_hint="--with")
    if len({name.casefold() for name, _, _ in read}) < len(read):
        raise click.BadParameter("a table is named twice", param_hint="--with")
    return {name: path for name, _, path in read}


@click.command("add-report")
@click.argument("name")
@command
def add_report(shell: Shell, name: str) -> None:
    """Print the report of how the rows of NAME were read when they were added; owner only."""
    with shell.open() as vault:
        report = vault.add_report(name)
    shell.show(report.shape, str(report))


@click.command("enrol")
@click.argument("member")
@click.argument("group")
@command
def enrol(shell: Shell, member: str, group: str) -> None:
    """Put MEMBER into GROUP; they can ask every data set whose card lists GROUP under [ask]."""
    with shell.open() as vault:
        vault.enrol(member, group)
    shell.show({"user": member, "group": group}, f"{member} is now in {group}.")


@click.command("forget-earlier")
@command
def forget_earlier(shell: Shell) -> None:
    """Remove the rows of earlier versions of all data sets from disk.

    Nobody can ask these versions any more. Run this while nobody asks: a running question on an
    earlier version would fail, and its charge stays.
    """
    with shell.open_folder() as vault:
        count = vault.owner.data_sets.forget_earlier()
    shell.show({"removed": count}, f"Removed tables of earlier versions: {count}.")


_STAYS: Final = (
    "What this cannot take back: released answers, noisy counts of streams, twins, results of "
    "programs, files that you or others have, and backups. The vault keeps a keyed digest of the "
    "person, which recognises the people and their budget."
)


@click.command("forget-person")
@click.argument("name")
@click.argument("person")
@click.option("--version", required=True, help="The name of the new version.")
@command
def forget_person(shell: Shell, name: str, person: str, version: str) -> None:
    """Remove one PERSON's rows from NAME, as a new version, and its earlier versions from disk.

    PERSON is the identifier in your files; `-` reads it from standard input, so that it is in no
    list of commands. Run this while nobody asks: a running question on an earlier version would
    fail, and its charge stays.
    """
    if person == "-":
        person = sys.stdin.readline().strip()
    with shell.open() as vault, show_elapsed("Removing the rows"):
        made = vault.forget_person(name, person, version=version)
    others = ""
    if made.others:
        others = (
            f"Other data sets are about the same people: {', '.join(made.others)}. Repeat this for "
            "each of them that has rows of the person.\n"
        )
    shell.show(
        {"version": made.version, "removed": made.removed, "others": list(made.others)},
        f"{made.name} now has the version {made.version}, without the person. Removed "
        f"tables of earlier versions: {made.removed}.\n{others}{_STAYS}\n"
        "Leave the person out of the files that you append or add from now on.",
    )


COMMANDS = (init, change_key, add, append, add_report, enrol, forget_earlier, forget_person)
