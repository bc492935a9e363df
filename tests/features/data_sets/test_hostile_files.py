"""Files that nobody cleaned: proposed, published and asked, or refused with their cause.

Each file holds the same 200 rows. Whatever its spelling, five questions of it have the same truth.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, cast

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pyreadstat
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from support.small_vaults import make_vault

PEOPLE: Final = 200
EPSILON: Final = 150
CITIES: Final = ("Bern", "Zürich", "Genève")
FROM: Final = date(2024, 7, 1)
Row = tuple[str, float | None, str, date]


def the_rows() -> list[Row]:
    """Return who, kg (some are missing), city and day."""
    return [
        (
            f"P{n:03}",
            None if n % 10 == 3 else 1040.5 + 7 * n + n % 10 / 10,
            CITIES[n % 7 % 3],
            date(2024, n % 12 + 1, n % 28 + 1),
        )
        for n in range(PEOPLE)
    ]


ROWS: Final = the_rows()


@dataclass(frozen=True)
class Hostile:
    """How a file is written, and what an owner has to say about it besides bounds and keys."""

    write: Callable[[Path], Path]
    names: Sequence[str] = ("who", "kg", "city", "day")
    table: str | None = None
    card: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def text(
    number: Callable[[float], str] = str,
    day: Callable[[date], str] = str,
    *,
    names: Sequence[str] = ("who", "kg", "city", "day"),
    missing: Sequence[str] = ("",),
    **how: Any,
) -> str:
    """Return the rows as a CSV text."""
    made = io.StringIO()
    writer = csv.writer(made, **{"lineterminator": "\n", **how})
    writer.writerow(names)
    for n, (who, kg, city, at) in enumerate(ROWS):
        shown = missing[n % len(missing)] if kg is None else number(kg)
        writer.writerow([who, shown, city, day(at)])
    return made.getvalue()


def stored(content: str | bytes, suffix: str = ".csv") -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path = path.with_name(path.name + suffix)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def german(value: float) -> str:
    whole, part = f"{value:,.1f}".split(".")
    return f"{whole.replace(',', '.')},{part}"


def dots(at: date) -> str:
    return f"{at.day:02}.{at.month:02}.{at.year}"


def frame() -> pd.DataFrame:
    made = pd.DataFrame(ROWS, columns=["who", "kg", "city", "day"])
    made["kg"] = made["kg"].astype("float64")
    return made


def arrow() -> pa.Table:
    who, kg, city, day = zip(*ROWS, strict=True)
    return pa.table(
        {
            "who": pa.array(who, pa.large_string()),
            "kg": pa.array(kg, pa.float64()),
            "city": pa.array(city).dictionary_encode(),
            "day": pa.array(day, pa.date32()),
        }
    )


def workbook(path: Path) -> Path:
    """Write a book of which the first sheet is a cover; dates are cells of dates."""
    book = openpyxl.Workbook()
    cover = book.active
    assert cover is not None
    cover.title = "read me"
    cover["B3"] = "Exported on Monday"
    sheet = book.create_sheet("data")
    sheet.append(["who", "kg", "city", "day", None])
    for who, kg, city, day in ROWS:
        sheet.append([who, kg, city, datetime(day.year, day.month, day.day), None])
    path = path.with_suffix(".xlsx")
    book.save(path)
    return path


def lite(path: Path) -> Path:
    path = path.with_suffix(".sqlite")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE log (at TEXT)")
    connection.execute("CREATE TABLE visits (who TEXT, kg REAL, city TEXT, day DATE)")
    connection.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)",
                           [(a, b, c, str(d)) for a, b, c, d in ROWS])  # fmt: skip
    connection.commit()
    connection.close()
    return path


def duck(path: Path) -> Path:
    path = path.with_suffix(".duckdb")
    with duckdb.connect(path) as connection:
        connection.register("given", arrow())
        connection.execute("CREATE TABLE visits AS SELECT * FROM given")
        connection.execute("CREATE VIEW of_bern AS SELECT * FROM visits WHERE city = 'Bern'")
    return path


def lines(path: Path) -> Path:
    """Write JSON lines: an absent key, an explicit null, a key more, another order."""
    made = []
    for n, (who, kg, city, day) in enumerate(ROWS):
        one: dict[str, object] = {"day": str(day), "who": who, "kg": kg, "city": city}
        if kg is None and n % 20 == 3:
            del one["kg"]
        if n % 9 == 0:
            one["note"] = "late\u2028line"
        made.append(json.dumps(one, ensure_ascii=n % 2 == 0))
    return stored("\n".join(made) + "\n\n", ".jsonl")(path)


def folder(path: Path) -> Path:
    """Write a folder of Parquet files with the city in the folders' names."""
    table = arrow()
    for n, city in enumerate(CITIES):
        part = path / f"city={city}"
        part.mkdir(parents=True)
        chosen = table.filter(pa.compute.equal(table["city"].cast(pa.string()), city))
        pyarrow.parquet.write_table(
            chosen.drop(["city"]), part / f"{n}.parquet", compression=["gzip", "zstd", "none"][n]
        )
    return path


def parquet(path: Path) -> Path:
    """Write one Parquet file with a decimal, a moment with a zone, and an index column."""
    table = arrow()
    table = table.set_column(1, "kg", table["kg"].cast(pa.decimal128(12, 1)))
    path = path.with_suffix(".parquet")
    pyarrow.parquet.write_table(table.append_column("extra", pa.nulls(PEOPLE)), path)
    return path


def statistical(kind: str) -> Callable[[Path], Path]:
    def write(path: Path) -> Path:
        path = path.with_suffix(f".{kind}")
        if kind == "sav":
            pyreadstat.write_sav(frame(), path, column_labels=["Wer", "", "", ""])
        else:
            pyreadstat.write_dta(frame(), path)
        return path

    return write


def zipped(path: Path) -> Path:
    path = path.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("export/visits.csv", text())
    return path


def wide(path: Path) -> Path:
    """Write 296 columns beside the four."""
    head, *body = text().splitlines()
    names, cells = (",".join(f"{kind}{i}" for i in range(296)) for kind in ("c", ""))
    return stored("\n".join([f"{head},{names}", *(f"{line},{cells}" for line in body)]))(path)


UMLAUTS: Final = ("Person Nr.", "Gewicht (kg)", "Städte", "Größter Tag")
READ: Final[Mapping[str, Hostile]] = {
    "plain": Hostile(stored(text())),
    "german excel": Hostile(
        stored(b"\xef\xbb\xbf" + text(german, dots, delimiter=";", lineterminator="\r\n").encode())
    ),
    "windows": Hostile(
        stored(text(german, dots, names=UMLAUTS, delimiter=";").encode("cp1252")), UMLAUTS
    ),
    "utf-16": Hostile(stored(text(delimiter="\t").encode("utf-16"), ".tsv")),
    "french": Hostile(
        stored(
            text(
                lambda x: f"{x:,.1f}".replace(",", "\u202f").replace(".", ","),
                lambda d: f"{d.day:02}/{d.month:02}/{d.year}",
                delimiter=";",
            )
        )
    ),
    "swiss": Hostile(stored(text(lambda x: f"{x:,.1f}".replace(",", "'"), dots, delimiter=";"))),
    "american days": Hostile(stored(text(day=lambda d: f"{d.month}/{d.day}/{d.year}"))),
    "old mac": Hostile(stored(text(lineterminator="\r"))),
    "pipes": Hostile(stored(text(delimiter="|"), ".txt")),
    "all quoted": Hostile(stored(text(quoting=csv.QUOTE_ALL, lineterminator="\r\n"))),
    "quoted newline": Hostile(
        stored(text().replace("P007,", '"P007",').replace("who,kg", 'who,"weight\n(kg)"')),
        ("who", "weight\n(kg)", "city", "day"),
    ),
    "null spellings": Hostile(
        stored(text(missing=("", "NA", "n/a", "-", "k.A."))),
        columns={"kg": {"nulls": ["", "NA", "n/a", "-", "k.A."]}},
    ),
    "a column of a sum": Hostile(stored(text().replace("\n", ",\n"))),
    "gzip": Hostile(stored(gzip.compress(text().encode()), ".csv.gz")),
    "zip": Hostile(zipped),
    "exponents": Hostile(stored(text(lambda x: f"{x:.4E}"))),
    "blanks": Hostile(stored(text(lambda x: f"  {x} "))),
    "excel": Hostile(workbook, table="data"),
    "sqlite": Hostile(lite, table="visits"),
    "duckdb": Hostile(duck, table="visits"),
    "json lines": Hostile(lines),
    "parquet": Hostile(parquet),
    "parquet folder": Hostile(folder),
    "feather": Hostile(
        lambda path: (pyarrow.feather.write_feather(arrow(), f"{path}.feather"),
                      Path(f"{path}.feather"))[1]
    ),
    "spss": Hostile(statistical("sav")),
    "stata": Hostile(statistical("dta")),
    "300 columns": Hostile(wide),
}  # fmt: skip


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path / "vault")) as opened:
        yield opened


def finished(proposed: Json, one: Hostile, name: str) -> Json:
    """Return a proposed card with what only its owner knows."""
    who, kg, city, _day = one.names
    card = cast("dict[str, Any]", proposed)
    columns = {column: dict(said) for column, said in card["columns"].items()}
    columns[kg] |= {"lower": 0, "upper": 5000, "step": 0.1, **one.columns.get("kg", {})}
    columns[city]["keys"] = list(CITIES)
    kept = {column: columns[column] for column in one.names[1:]}
    return {**card, "unit": who, "people": name, "budget": {"epsilon": 1000}, "columns": kept,
            **one.card}  # fmt: skip


@pytest.mark.parametrize("title", READ)
def test_five_questions_have_the_truth_of_the_file(
    vault: OpenVault, tmp_path: Path, title: str
) -> None:
    one, name = READ[title], title.replace(" ", "_").replace("-", "_")
    name = f"f_{name}"
    source = one.write(tmp_path / "rows")
    proposed = vault.proposed(name, source, one.table)
    vault.add(name, source, finished(cast("Json", proposed["card"]), one, name),
              inner_table=one.table)  # fmt: skip

    _who, kg, city, day = one.names
    known = [weight for _who, weight, _city, _day in ROWS if weight is not None]
    late = sum(at >= FROM for *_, at in ROWS)
    data = vault[name]

    def asked(builder: Any, op: str) -> float:
        return float(str(builder.ask(epsilon=EPSILON, op=op).value))

    assert abs(asked(data.count(), "1") - PEOPLE) < 1
    assert abs(asked(data.sum(kg), "2") - sum(known)) < 500
    assert abs(asked(data.mean(kg), "3") - sum(known) / len(known)) < 5
    assert abs(asked(data.where(sfumato.col(day) >= FROM).count(), "4") - late) < 1
    cells = data.group_by(city).count(name="n").ask(epsilon=EPSILON, op="5").rows
    expected = {one: sum(city == one for *_, city, _ in ROWS) for one in CITIES}
    assert {row[0]: round(float(str(row[1]))) for row in cells} == expected


def bad(content: str | bytes, suffix: str = ".csv") -> Callable[[Path], Path]:
    return stored(content, suffix)


REFUSED: Final[Mapping[str, tuple[Callable[[Path], Path], str]]] = {
    "empty": (bad(""), "no column names"),
    "only a byte order mark": (bad(b"\xef\xbb\xbf"), "no column names"),
    "no header": (bad("\n".join(text().splitlines()[1:])), "looks like a row of data"),
    "a title above": (bad("Visits of 2024\n\n" + text()), "first line has one cell"),
    "duplicate names": (
        bad(text(names=("who", "kg", "kg", "day"))),
        "Several columns are called 'kg'",
    ),
    "a page of the web": (bad("<!DOCTYPE html><html><body>log in</body></html>"), "a web page"),
    "not a workbook": (bad(text(), ".xlsx"), "no Excel"),
    "cut off": (bad(gzip.compress(text().encode())[:-60], ".csv.gz"), "damaged, cut off"),
    "two sheets": (workbook, "2 sheets"),
    "two tables": (lite, "2 tables"),
    "a workbook called csv": (
        lambda path: workbook(path).rename(path.with_suffix(".csv")),
        "a workbook",
    ),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_cannot_be_read_is_refused_with_its_cause(
    vault: OpenVault, tmp_path: Path, title: str
) -> None:
    write, cause = REFUSED[title]
    with pytest.raises(Refused, match=f"(?i){cause}"):
        vault.proposed("bad", write(tmp_path / "rows"))


def test_a_line_with_other_cells_is_named_by_its_number(vault: OpenVault, tmp_path: Path) -> None:
    source = stored(text().replace("P010,", "P010,9,9,"))(tmp_path / "rows")
    proposed = vault.proposed("bad", source)
    shape = finished(cast("Json", proposed["card"]), READ["plain"], "bad")
    with pytest.raises(Refused, match=r"cells as the first line\. The first such line is 12;"):
        vault.add("bad", source, shape)


def test_words_of_truth_and_missing_values_are_of_a_column(
    vault: OpenVault, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    said = ["ja", "Nein", "weiss nicht", "-9", ""]
    source.write_text(
        "who,smokes,score,level\n"
        + "".join(f"p{n},{said[n % 5]},{(n % 5) or -9},{(n % 5) or -9}\n" for n in range(PEOPLE))
    )
    words = {"true": ["Ja"], "false": ["nein"], "nulls": ["-9", "weiss nicht"]}
    shape: dict[str, Any] = {
        "unit": "who",
        "people": "truths",
        "budget": {"epsilon": 1000},
        "columns": {
            "smokes": {"type": "boolean", **words},
            "score": {"type": "integer", "lower": -9, "upper": 9},
            "level": {"type": "integer", "lower": -9, "upper": 9, "nulls": ["-9"]},
        },
    }
    vault.add("truths", source, shape)
    data = vault["truths"]
    cells = data.group_by("smokes").count(name="n").ask(epsilon=EPSILON, op="1").rows
    assert {row[0]: round(float(str(row[1]))) for row in cells} == {True: 40, False: 40}
    for op, column, below in (("2", "score", 40), ("3", "level", 0)):  # -9 is missing in one alone
        lowest = data.where(sfumato.col(column) < 0).count().ask(epsilon=EPSILON, op=op).value
        assert abs(float(str(lowest)) - below) < 1

    wrong = {**shape, "columns": {"smokes": {"type": "boolean", "true": ["wahr"]}}}
    with pytest.raises(Refused, match="cells-unreadable"):
        vault.add("wrong", source, wrong)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"type": "text", "true": ["x"]}, "for booleans"),
        ({"type": "boolean", "true": ["x"], "false": ["X"]}, "a word in common"),
        ({"type": "boolean", "true": []}, "lists of words"),
        ({"type": "integer", "nulls": "-9"}, "a list of texts"),
        ({"type": "text", "keys": ["a", "-"], "nulls": ["-"]}, "under nulls and as a key"),
    ],
)
def test_words_that_cannot_hold_are_refused(
    vault: OpenVault, tmp_path: Path, said: Mapping[str, object], why: str
) -> None:
    source = stored("who,x\na,1\n")(tmp_path / "rows")
    shape = {"unit": "who", "people": "x", "budget": {"epsilon": 1}, "columns": {"x": said}}
    with pytest.raises(Refused, match=why):
        vault.add("x", source, shape)
