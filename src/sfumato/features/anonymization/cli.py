"""The `anonymity` commands: measure k-anonymity, recode a table, check synthetic data."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import click

from sfumato.cli.shell import Shell, command, show_elapsed
from sfumato.client.answer_chart import CONFIG, SCHEMA
from sfumato.client.ask_terms import Json
from sfumato.client.plot import Plot, check_picture
from sfumato.dp.refusal import Refused
from sfumato.features.anonymization import (
    Coarsening,
    Goal,
    Recoding,
    Rule,
    TableFile,
    read_rules,
    read_taxonomy,
    rules_toml,
)
from sfumato.features.anonymization.report_text import (
    check_lines,
    leak_lines,
    preview_lines,
    reach_lines,
    unique_lines,
    worded,
)
from sfumato.system.csv_writer import write_rows

# --- Plot risk against information loss: one point per k, the chosen one marked


Point = dict[str, Any]  # Any: numbers of the service, as JSON has them
_LINE: Final = "#0072B2"
_CHOSEN: Final = "#D55E00"


def risk_and_loss(curve: Mapping[str, Any]) -> Plot:  # Any: the service's JSON
    """Plot risk against information loss for several k, with a table and a summary."""
    points = [one for one in curve["points"] if "refused" not in one]
    title = f"Re-identification risk and information loss for several k, {curve['method']} recoding"
    return Plot(
        spec=_spec(curve, points, title),
        title=title,
        summary=f"{title}. {_summary(curve, points)}",
        columns=("k", "highest chance of re-identification", "loss", "rows left out"),
        cells=tuple(_cells(one, curve["chosen"]) for one in points),
    )


def _summary(curve: Mapping[str, Any], points: list[Point]) -> str:
    chosen = [one for one in points if one["k"] == curve["chosen"]]
    said = [
        f"Chosen: k = {one['k']}, at most {one['highest']:.1%} re-identified, loss "
        f"{one['loss']:.3f}."
        for one in chosen
    ]
    beyond = [one["k"] for one in curve["points"] if "refused" in one]
    if beyond:
        said.append(f"Not possible: k = {', '.join(map(str, beyond))}.")
    return " ".join(said)


def _cells(one: Point, chosen: int) -> tuple[str, ...]:
    mark = " (chosen)" if one["k"] == chosen else ""
    return (
        f"{one['k']}{mark}",
        f"{one['highest']:.1%}",
        f"{one['loss']:.3f}",
        f"{one['suppressed']:,}",
    )


def _rows(points: list[Point], chosen: int) -> list[Json]:
    """Return the points to plot, each labelled with every k that has this risk and loss."""
    places: dict[tuple[float, float], list[int]] = {}
    for one in points:
        places.setdefault((one["highest"], one["loss"]), []).append(one["k"])
    return [
        {"k": f"k = {', '.join(map(str, ks))}", "risk": x, "loss": y, "chosen": chosen in ks}
        for (x, y), ks in places.items()
    ]


def _spec(curve: Mapping[str, Any], points: list[Point], title: str) -> Json:
    rows = _rows(points, curve["chosen"])
    x: Json = {
        "field": "risk", "type": "quantitative", "axis": {"format": "%"},
        "scale": {"zero": True}, "title": "highest chance of re-identification",
    }  # fmt: skip
    y: Json = {
        "field": "loss", "type": "quantitative", "scale": {"zero": True},
        "title": "information loss (0: none, 1: all)",
    }  # fmt: skip
    color: Json = {
        "condition": {"test": "datum.chosen", "value": _CHOSEN}, "value": _LINE,
    }  # fmt: skip
    place: Json = {"x": x, "y": y}
    subtitle = f"{curve['guarantee']}. Owner-only. Orange: {curve['goal']}."
    return {
        "$schema": SCHEMA, "config": CONFIG, "width": 460, "height": 280,
        "title": {"text": title, "subtitle": [subtitle]},
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "line", "color": _LINE, "opacity": 0.5}, "encoding": place},
            {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
             "encoding": {**place, "color": color}},
            {"mark": {"type": "text", "align": "left", "dx": 8, "dy": -6},
             "encoding": {**place, "text": {"field": "k"}, "color": color}},
        ],
    }  # fmt: skip


@click.group("anonymity")
def anonymity() -> None:
    """Measure and reach k-anonymity in your own table. It is never differential privacy.

    These commands print exact results, without noise: do not share them. Begin with `check TABLE
    --quasi A,B --sensitive C`. A and B are columns that an attacker may know, and C is a secret.
    Then run `hierarchies`, and `reach ... --k 5 --out NEW.csv`.
    """


def _names(_context: object, _option: object, text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


_FILE = click.Path(exists=True, dir_okay=False)
_QUASI = click.option(
    "--quasi",
    callback=_names,
    metavar="A,B",
    help="Quasi-identifiers: columns that an attacker may know.",
)
_SENSITIVE = click.option(
    "--sensitive",
    callback=_names,
    metavar="A,B",
    help="Sensitive columns: secrets that an attacker may look for.",
)
_INNER = click.option(
    "--table", "inner", help="The table's name, if TABLE is a DuckDB file with several tables."
)


@anonymity.command("check")
@click.argument("table", type=_FILE)
@_QUASI
@_SENSITIVE
@_INNER
@click.option(
    "--others-known",
    is_flag=True,
    help="Assume that an attacker knows all sensitive columns but one.",
)
@click.option("--fraction", type=float, help="The fraction of the population that is in the table.")
@command
def check(shell: Shell, table: str, inner: str | None, **how: Any) -> None:
    """Measure how anonymous TABLE is; by default, all other columns are quasi-identifiers."""
    with show_elapsed("reading"):
        found = shell.app.anonymity().check(
            TableFile(table, inner),
            how["quasi"] or None,
            how["sensitive"],
            others_known=how["others_known"],
            fraction=how["fraction"],
        )
    shell.show(found, worded(check_lines(found)))


@anonymity.command("unique")
@click.argument("table", type=_FILE)
@_QUASI
@_INNER
@click.option("--most", type=click.IntRange(1, 12), default=4, show_default=True)
@command
def unique(shell: Shell, table: str, inner: str | None, quasi: tuple[str, ...], most: int) -> None:
    """Show which combinations of at most --most columns make people unique."""
    with show_elapsed("checking combinations of columns"):
        found = shell.app.anonymity().unique(TableFile(table, inner), quasi or None, most)
    shell.show(found, worded(unique_lines(found)))


@anonymity.command("hierarchies")
@click.argument("table", type=_FILE)
@click.option("--quasi", callback=_names, metavar="A,B", required=True)
@_INNER
@click.option(
    "--out", metavar="FILE", help="Write the proposed rules to this TOML file, for review."
)
@command
def hierarchies(shell: Shell, table: str, inner: str | None, **how: Any) -> None:
    """Propose a generalisation of each column, and show examples."""
    if how["out"] is not None:
        _check_new(how["out"])  # don't overwrite rules that were reviewed
    rules, found = shell.app.anonymity().hierarchies(TableFile(table, inner), how["quasi"])
    text = rules_toml(rules)
    if how["out"] is not None:
        _write(how["out"], lambda file: file.write(text))
    told = text.split("\n") if how["out"] is None else [f"Written: {how['out']}"]
    shell.show({**found, "rules": text}, worded([*preview_lines(found), "", *told]))


def _goal(function: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--delta",
            type=float,
            help="delta-disclosure privacy: the largest difference of log frequencies.",
        ),
        click.option(
            "--enhanced-beta",
            type=float,
            help="Enhanced beta-likeness: the largest gain of a value, also bounded for frequent "
            "values.",
        ),
        click.option(
            "--beta",
            type=float,
            help="beta-likeness: the largest relative gain of a value's frequency in a class.",
        ),
        click.option(
            "--alpha",
            type=float,
            help="(alpha, k)-anonymity: the largest share of a sensitive value in a class.",
        ),
        click.option(
            "--t",
            type=float,
            help="t-closeness: the largest distance of a class from the whole table.",
        ),
        click.option("--recursive", metavar="C,L", help="Recursive (c, l)-diversity."),
        click.option("--entropy-l", type=float, help="Entropy l-diversity."),
        click.option(
            "--l",
            type=click.IntRange(1),
            help="l-diversity: the least number of distinct sensitive values in a class.",
        ),
        click.option(
            "--k",
            type=click.IntRange(1),
            required=True,
            help="k-anonymity: the least number of rows in a class.",
        ),
    ):
        function = option(function)
    return function


@anonymity.command("reach")
@click.argument("table", type=_FILE)
@click.option("--quasi", callback=_names, metavar="A,B", required=True)
@_SENSITIVE
@_INNER
@_goal
@click.option(
    "--method", type=click.Choice(["global", "local", "mondrian"]), default="global",
    show_default=True,
    help="global recodes whole columns, local each class by itself, mondrian splits at medians.",
)  # fmt: skip
@click.option(
    "--suppress", type=float, default=0.0, help="The largest share of rows that may be left out."
)
@click.option(
    "--hierarchies", "rules", metavar="FILE", help="A file with generalisation rules, TOML or JSON."
)
@click.option(
    "--taxonomy",
    multiple=True,
    metavar="COLUMN=FILE",
    help="A CSV file: each line has a value, then its groups. Repeatable.",
)
@click.option("--keep", callback=_names, metavar="A,B", help="Other columns to keep unchanged.")
@click.option(
    "--pseudonyms",
    "names",
    callback=_names,
    metavar="A,B",
    help="Columns whose values are replaced by pseudonyms.",
)
@click.option("--key", metavar="FILE", help="A file with 32 secret bytes, for the pseudonyms.")
@click.option(
    "--cut",
    multiple=True,
    metavar="COLUMN=LOW..HIGH",
    help="Clamp the numbers of a column to this range. Repeatable.",
)
@click.option(
    "--round",
    "rounds",
    multiple=True,
    metavar="COLUMN=STEP",
    help="Round a column's numbers to multiples of STEP. Repeatable.",
)
@click.option("--average", multiple=True, metavar="COLUMN,...=K",
              help="Microaggregation: average over K neighbours that are near in these columns. "
                  "Repeatable.")  # fmt: skip
@click.option("--out", metavar="FILE", help="Write the recoded table to this CSV file.")
@click.option(
    "--picture", metavar="FILE", help="Save a picture of risk and information loss for several k."
)
@click.option("--data-set", help="The data set of --vault that is about the same people.")
@command
def reach(shell: Shell, table: str, inner: str | None, **how: Any) -> None:
    """Recode TABLE so that it meets the given criteria, with the least information loss found.

    With --data-set, the vault's ledger records the release of the table before the table is
    written, and every later receipt about these people mentions it.
    """
    _check_outputs(how["out"], how["picture"])  # before the ledger or a file is written
    service, file, recoding = shell.app.anonymity(), TableFile(table, inner), _recoding(how)
    with show_elapsed("recoding"):
        lines, found = service.reach(file, recoding)
        curve = None if how["picture"] is None else service.curve(file, recoding)
    if how["data_set"] is not None and how["out"] is not None:
        with shell.open_folder() as vault:
            found["handed_out"] = vault.hand_out(how["data_set"], recoding)
    if how["out"] is not None:
        _write(how["out"], lambda file: write_rows(file, lines))
        found["written"] = how["out"]
    if curve is not None:
        found["curve"] = curve
        risk_and_loss(curve).save(how["picture"])
    shell.show(found, worded(reach_lines(found)))


@anonymity.command("leaks")
@click.argument("original", type=_FILE)
@click.argument("look_alike", metavar="LOOK-ALIKE", type=_FILE)
@click.option(
    "--held-back", metavar="FILE", help="Rows of the same kind that LOOK-ALIKE was not made from."
)
@command
def leaks(shell: Shell, original: str, look_alike: str, held_back: str | None) -> None:
    """Show what LOOK-ALIKE has kept of ORIGINAL: rows, near rows, rare values, extremes."""
    with show_elapsed("comparing"):
        found = shell.app.anonymity().leaks(
            TableFile(original),
            TableFile(look_alike),
            None if held_back is None else TableFile(held_back),
        )
    shell.show(found, worded(leak_lines(found)))


def _recoding(how: dict[str, Any]) -> Recoding:
    goal = Goal(
        how["k"], how["l"], how["entropy_l"], _pair(how["recursive"]), how["alpha"], how["t"],
        how["beta"], how["enhanced_beta"], how["delta"],
    )  # fmt: skip
    if how["names"] and how["key"] is None:
        raise Refused(
            "bad-request",
            "--pseudonyms needs a secret key.",
            "Give --key FILE with 32 secret bytes.",
        )
    key = b"" if how["key"] is None else _read(how["key"])
    return Recoding(
        how["quasi"], goal, how["sensitive"], how["method"], how["suppress"],
        _rules(how["rules"], how["taxonomy"]), how["keep"], how["names"], key, _blunt(how),
    )  # fmt: skip


def _blunt(how: dict[str, Any]) -> tuple[Coarsening, ...]:
    typed = [(kind, pair) for kind in ("cut", "round", "average") for pair in how[_OPTION[kind]]]
    return tuple(_one_blunt(kind, pair) for kind, pair in typed)


_OPTION = {"cut": "cut", "round": "rounds", "average": "average"}


def _one_blunt(kind: str, pair: str) -> Coarsening:
    column, _, text = pair.rpartition("=")
    try:
        numbers = tuple(float(part) for part in text.split(".."))
    except ValueError:
        numbers = ()
    if column and len(numbers) == (2 if kind == "cut" else 1):
        names = column.split(",") if kind == "average" else [column]
        return Coarsening(tuple(names), kind, numbers)
    raise click.BadParameter("write COLUMN=NUMBER, or COLUMN=LOW..HIGH", param_hint=f"--{kind}")


def _pair(text: str | None) -> tuple[float, int] | None:
    if text is None:
        return None
    c, mark, least = text.partition(",")
    try:
        if mark:
            return float(c), int(least)
    except ValueError:
        pass
    raise click.BadParameter("write C,L, like 2,3", param_hint="--recursive")


def _rules(path: str | None, taxonomies: Sequence[str]) -> dict[str, Rule]:
    rules = {} if path is None else read_rules(_read_shape(path))
    for pair in taxonomies:
        name, mark, file = pair.partition("=")
        if not mark:
            raise click.BadParameter("write COLUMN=FILE", param_hint="--taxonomy")
        if name in rules:
            raise click.BadParameter(f"{name!r} already has a rule", param_hint="--taxonomy")
        rules[name] = read_taxonomy(_text(file))
    return rules


def _read_shape(path: str) -> dict[str, Any]:
    text, shape = _text(path), None
    try:
        shape = json.loads(text) if path.endswith(".json") else tomllib.loads(text)
    except (ValueError, RecursionError):
        shape = None
    if isinstance(shape, dict):
        return shape
    raise Refused(
        "bad-request",
        f"sfumato cannot read {path} as TOML or JSON.",
        "Correct the file, or make a new one with `sfumato anonymity hierarchies --out`.",
    )


def _text(path: str) -> str:
    try:
        return _read(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        pass
    raise Refused(
        "source-unreadable", f"{path} is not encoded in UTF-8.", "Save the file as UTF-8."
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError):
        pass
    raise Refused("source-unreadable", f"sfumato cannot read {path}.", "Give the path of a file.")


def _write(path: str, write: Callable[[TextIO], object]) -> None:
    try:
        with Path(path).open("x", encoding="utf-8", newline="") as file:
            write(file)
        return
    except OSError:
        pass
    raise _not_new(path)


def _check_outputs(out: str | None, picture: str | None) -> None:
    """Refuse output files that exist, are the same file, or have an unknown picture format."""
    for name in (out, picture):
        if name is not None:
            _check_new(name)
    if picture is not None:
        check_picture(picture)
        if out is not None and Path(out).absolute() == Path(picture).absolute():
            raise Refused(
                "bad-request", "--out and --picture name the same file.", "Name two files."
            )


def _check_new(name: str) -> None:
    """Refuse a path that exists, even as a dangling link, or whose folder doesn't exist."""
    path, has_folder, is_new = Path(name), True, False
    try:
        has_folder = path.parent.is_dir()
        path.lstat()
    except FileNotFoundError:
        is_new = True
    except (OSError, ValueError):  # a name that no file can have
        is_new = False
    if not has_folder:
        raise Refused(
            "bad-request",
            f"{path.parent} is not a folder.",
            "Make the folder, or name another one.",
        )
    if not is_new:
        raise _not_new(name)


def _not_new(path: str) -> Refused:
    return Refused(
        "bad-request",
        f"{path} already exists, or sfumato cannot write it.",
        "Choose a new file in a folder where you may write.",
    )


COMMANDS = (anonymity,)
