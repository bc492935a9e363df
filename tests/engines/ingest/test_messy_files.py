"""Files as other programs write them: every typed column is read right, or refused with its cause.

A column of which nearly all cells became null was published without a word before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.client.owner import Added
from sfumato.dp.refusal import Refused
from support.small_vaults import make_vault

BUDGET: Final = {"epsilon": 1}
PEOPLE: Final = 40


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    with sfumato.open(make_vault(tmp_path_factory.mktemp("reading"))) as opened:
        yield opened


def stored(vault: OpenVault, name: str, columns: int) -> list[tuple[object, ...]]:
    """Return what the prepared table holds: the values that questions are answered from."""
    listing = vault.house.catalogue.find(name)
    assert listing is not None
    values = ", ".join(f"v{i}" for i in range(columns))
    with duckdb.connect(listing.table, read_only=True) as connection:
        return sorted(connection.execute(f'SELECT {values} FROM "rows"').fetchall(), key=str)


@dataclass(frozen=True)
class File:
    """A file, its card, and what its cells mean: steps of numbers, days, truths and texts."""

    text: str | bytes
    columns: Mapping[str, Mapping[str, Any]]
    values: Sequence[tuple[object, ...]]
    more: Mapping[str, object] = field(default_factory=dict)
    suffix: str = ".csv"

    def written(self, path: Path) -> Path:
        content = self.text if isinstance(self.text, bytes) else self.text.encode()
        path = path.with_suffix(self.suffix)
        path.write_bytes(content)
        return path


def of_each(make: Any, count: int = PEOPLE) -> list[tuple[object, ...]]:
    return sorted((make(n) for n in range(count)), key=str)


WEIGHT: Final = {"type": "number", "lower": 0, "upper": 200, "step": 0.1}
PAID: Final = {"type": "number", "lower": 0, "upper": 100_000, "step": 0.01}
DAY: Final = {"type": "date"}
COMMA: Final = {**WEIGHT, "decimal": ","}
GERMAN: Final = {**DAY, "format": "%d.%m.%Y"}


def day(n: int) -> date:
    return date(2024, 3, n % 28 + 1)


def weight(n: int) -> int:
    return (50 + n) * 10 + n % 10


FILES: Final[Mapping[str, File]] = {
    # 1. Excel in Germany: semicolons, decimal commas, dd.mm.yyyy, CRLF, a BOM
    "german excel": File(
        b"\xef\xbb\xbf"
        + "\r\n".join(
            ["Nr;Gewicht;Besuch"]
            + [f"P{n};{50 + n},{n % 10};{n % 28 + 1:02}.03.2024" for n in range(PEOPLE)]
        ).encode(),
        {"Gewicht": COMMA, "Besuch": GERMAN},
        of_each(lambda n: (weight(n), day(n))),
        {"unit": "Nr"},
    ),
    # 2. Windows in Western Europe: cp1252, umlauts in names and keys, a euro sign
    "cp1252": File(
        "\r\n".join(
            ["Größe;Währung;Gehalt"]
            + [f"1{n:02},5;{'€' if n % 2 else 'Fränkli'};2.{n:03},25" for n in range(PEOPLE)]
        ).encode("cp1252"),
        {
            "Größe": {"type": "number", "lower": 0, "upper": 250, "step": 0.5},
            "Währung": {"type": "text", "keys": ["€", "Fränkli"]},
            "Gehalt": PAID,
        },
        of_each(lambda n: (2 * (100 + n) + 1, "€" if n % 2 else "Fränkli", 200_025 + 100 * n)),
        {"decimal": ",", "thousands": ".", "encoding": "cp1252"},
    ),
    # 3. a statistics office in France: latin-1, blanks between thousands, dd/mm/yyyy
    "french": File(
        "\n".join(
            ["Département;Revenu;Né le"]
            + [f"Ardèche;{n + 1}\u00a0500,5;{n % 28 + 1:02}/03/2024" for n in range(PEOPLE)]
        ).encode("latin-1"),
        {
            "Département": {"type": "text", "keys": ["Ardèche"]},
            "Revenu": {**PAID, "decimal": ",", "thousands": " "},
            "Né le": {**DAY, "format": "%d/%m/%Y"},
        },
        of_each(lambda n: ("Ardèche", 100 * (1000 * (n + 1) + 500) + 50, day(n))),
        {"encoding": "latin-1"},
    ),
    # 4. Switzerland: apostrophes between thousands, a decimal point, d.m.yyyy without zeros
    "swiss": File(
        "\n".join(
            ["Lohn;Eintritt"]
            + [f"{n + 1}'250.5;{n % 28 + 1}.3.2024" for n in range(PEOPLE)]
        ),
        {"Lohn": {**PAID, "thousands": "'"}, "Eintritt": GERMAN},
        of_each(lambda n: (100 * (1000 * (n + 1) + 250) + 50, day(n))),
    ),
    # 5. quoted fields with separators, quotes and line ends in them; a moment without seconds
    "quoted": File(
        "\n".join(
            ['"Name; Vorname";"Notiz";"Zeit"']
            + [
                f'"Meier; {n}";"sagte ""ja"",\ndann; nein";"{n % 28 + 1:02}.03.2024 07:{n:02}"'
                for n in range(PEOPLE)
            ]
        ),
        {
            "Notiz": {"type": "text"},
            "Zeit": {"type": "timestamp", "format": "%d.%m.%Y %H:%M"},
        },
        of_each(lambda n: ('sagte "ja",\ndann; nein', datetime(2024, 3, n % 28 + 1, 7, n))),
    ),
    # 6. Excel's "Unicode text": UTF-16 with a BOM, tabs
    "utf-16": File(
        "\r\n".join(
            ["Město\tVáha"] + [f"Žďár\t{50 + n},{n % 10}" for n in range(PEOPLE)]
        ).encode("utf-16"),
        {"Město": {"type": "text", "keys": ["Žďár"]}, "Váha": COMMA},
        of_each(lambda n: ("Žďár", weight(n))),
        {"encoding": "utf-16"},
    ),
    # 7. a line that tells Excel the separator; a decimal without a zero before or after it
    "sep=": File(
        "\n".join(["sep=;", "puls;t"] + [f"{60 + n},;,{n % 10}" for n in range(PEOPLE)]),
        {"puls": COMMA, "t": COMMA},
        of_each(lambda n: (600 + 10 * n, n % 10)),
    ),
    # 8. no value in four spellings, which the card names
    "no value": File(
        "\n".join(
            ["kg;am"]
            + [
                ("k.A.;" if n % 4 == 0 else f"{50 + n},{n % 10};")
                + ("-" if n % 5 == 0 else f"{n % 28 + 1:02}.03.2024")
                for n in range(PEOPLE)
            ]
        ),
        {"kg": COMMA, "am": GERMAN},
        of_each(
            lambda n: (None if n % 4 == 0 else weight(n), None if n % 5 == 0 else day(n))
        ),
        {"nulls": ["", "k.A.", "-"]},
    ),
    # 9. no header: the card names the columns
    "no header": File(
        "\n".join(f"P{n};{50 + n},{n % 10};{n % 28 + 1:02}.03.2024" for n in range(PEOPLE)),
        {"gewicht": COMMA, "besuch": GERMAN},
        of_each(lambda n: (weight(n), day(n))),
        {"header": ["nr", "gewicht", "besuch"], "unit": "nr"},
    ),
    # 10. a BIDS table: tabs, n/a, points
    "bids": File(
        "\n".join(
            ["participant_id\tage\tscore"]
            + [f"sub-{n:02}\t{20 + n}\t{'n/a' if n == 3 else n / 10}" for n in range(PEOPLE)]
        ),
        {
            "age": {"type": "integer", "lower": 0, "upper": 110},
            "score": {"type": "number", "lower": 0, "upper": 10, "step": 0.1},
        },
        of_each(lambda n: (20 + n, None if n == 3 else n)),
        {"nulls": ["n/a"], "unit": "participant_id"},
        ".tsv",
    ),
}  # fmt: skip


def name_of(title: str) -> str:
    return "f" + "".join(c if c.isalnum() else "-" for c in title)


def add(vault: OpenVault, title: str, source: Path) -> Added:
    """Add a file by its card; the files are alike, and a second person says they are of others."""
    file, name = FILES[title], name_of(title)
    shape = {"unit": "row", "budget": BUDGET, "people": name, "columns": file.columns, **file.more}
    return vault.add(name, source, shape, different_people="the board")


@pytest.mark.parametrize("title", FILES)
def test_every_typed_column_of_a_european_file_is_read_right(
    vault: OpenVault, tmp_path: Path, title: str
) -> None:
    file = FILES[title]
    added = add(vault, title, file.written(tmp_path / "f"))
    assert stored(vault, name_of(title), len(file.columns)) == file.values
    assert added.report is not None
    for column in added.report["tables"][0]["columns"]:
        assert column["unreadable"] in (None, "under 1 %")


def plain(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the columns as a card has them that says nothing of formats."""
    formats = ("decimal", "thousands", "format")
    return {n: {k: v for k, v in c.items() if k not in formats} for n, c in columns.items()}


CAUSES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "german excel": ("cells-unreadable", ('decimal = ","', 'format = "%d.%m.%Y"')),
    "cp1252": ("source-unreadable", ('encoding = "cp1252"',)),
    "french": ("source-unreadable", ("encoding =",)),
    "swiss": ("cells-unreadable", ('thousands = "\'"', 'format = "%d.%m.%Y"')),
    "quoted": ("cells-unreadable", ('format = "%d.%m.%Y %H:%M"',)),
    "utf-16": ("source-unreadable", ('encoding = "utf-16"',)),
    "sep=": ("cells-unreadable", ('decimal = ","',)),
    "no value": ("cells-unreadable", ("under nulls", 'decimal = ","')),
    "no header": ("no-header", ("header = [",)),
}


@pytest.mark.parametrize("title", CAUSES)
def test_a_file_that_the_card_does_not_describe_is_refused_with_what_to_write(
    vault: OpenVault, tmp_path: Path, title: str
) -> None:
    file, (code, words) = FILES[title], CAUSES[title]
    bare = {"unit": "row", "budget": BUDGET, "columns": plain(file.columns)}
    with pytest.raises(Refused) as refused:
        vault.add(f"{name_of(title)}-bare", file.written(tmp_path / "f"), bare)
    assert refused.value.code == code
    for word in words:
        assert word in refused.value.next_step
    assert refused.value.__context__ is None
    assert vault.house.catalogue.find(f"{name_of(title)}-bare") is None


def test_a_number_with_a_zero_before_it_is_proposed_as_a_text(
    vault: OpenVault, tmp_path: Path
) -> None:
    source = tmp_path / "z.csv"
    source.write_text("plz,n\n" + "".join(f"0{1000 + n},{n}.5\n" for n in range(9)))
    assert vault.describe(source) == [("plz", "text"), ("n", "number")]


ODD: Final[Mapping[str, tuple[str, dict[str, Any], str, str]]] = {
    "a unit": ("n;x\n" + "1;70 kg\n" * 9, WEIGHT, "cells-unreadable", "unit beside the number"),
    "a currency": ("n;x\n" + "1;$1,000.50\n" * 9, PAID, "cells-unreadable", "unit beside"),
    "a short year": ("n;x\n" + "1;29.02.24\n" * 9, DAY, "cells-unreadable", "two digits"),
    "a month's name": ("n;x\n" + "1;29FEB2024\n" * 9, DAY, "cells-unreadable", "must be ISO"),
    "a zone": (
        "n;x\n" + "1;2024-02-29T10:00:00+01:00\n" * 9,
        {"type": "timestamp"}, "cells-unreadable", "must be ISO",
    ),
    "other truths": (
        "n;x\n" + "1;ja\n2;nein\n" * 9, {"type": "boolean"}, "cells-unreadable", "name them on",
    ),
    "two orders": ("n;x\n" + "1;03/04/2024\n" * 9, DAY, "cells-unreadable", "only you know which"),
    "a database's null": ("n;x\n" + "1;\\N\n2;5\n" * 9, WEIGHT, "cells-unreadable", "under nulls"),
    "one cell more": ("n;x\n" + "1;5;\n" * 9, WEIGHT, "source-unreadable", "as many cells"),
    "quotes by backslash": (
        "n,x\n" + '5,"a \\"b\\", c"\n' * 9, {"type": "text"}, "source-unreadable", "A quote",
    ),
    "two ends of lines": ("n,x\r\n1,2\n" + "3,4\r\n5,6\n" * 9, WEIGHT, "source-unreadable", ""),
}  # fmt: skip


@pytest.mark.parametrize("title", ODD)
def test_what_other_programs_write_and_we_cannot_read_is_refused_with_its_cause(
    vault: OpenVault, tmp_path: Path, title: str
) -> None:
    text, column, code, word = ODD[title]
    source = tmp_path / "odd.csv"
    source.write_bytes(text.encode())
    with pytest.raises(Refused) as refused:
        vault.add("odd", source, {"unit": "row", "budget": BUDGET, "columns": {"x": column}})
    assert refused.value.code == code
    assert word in f"{refused.value.cause} {refused.value.next_step}"


def test_the_same_people_are_known_again_in_another_spelling(
    vault: OpenVault, tmp_path: Path
) -> None:
    """A copy with decimal points and ISO days would have had a budget of its own."""
    rows = [(n, 50 + n * 0.7, day(n)) for n in range(400)]
    english = tmp_path / "en.csv"
    english.write_text("kg,am\n" + "".join(f"{x:.1f},{d}\n" for _, x, d in rows))
    comma = "".join(f"{x:.1f};{d:%d.%m.%Y}\n".replace(".", ",", 1) for _, x, d in rows)
    german = tmp_path / "de.csv"
    german.write_text("kg;am\n" + comma)
    plain_card = {
        "unit": "row",
        "people": "en",
        "budget": BUDGET,
        "columns": {"kg": WEIGHT, "am": DAY},
    }
    vault.add("en", english, plain_card, different_people="the board")
    before = sorted(vault.house.folder.glob("tables/*"))
    with pytest.raises(Refused, match="'en'") as refused:
        vault.add("de", german, {"unit": "row", "people": "de", "budget": BUDGET, "columns": {
            "kg": COMMA, "am": GERMAN}})  # fmt: skip
    assert refused.value.code == "same-people"
    assert sorted(vault.house.folder.glob("tables/*")) == before  # no report either


def test_formats_are_for_texts_and_not_for_numbers_of_a_parquet_file(
    vault: OpenVault, tmp_path: Path
) -> None:
    """1.500 that is a number already is no 1500."""
    source = tmp_path / "p.parquet"
    with duckdb.connect() as connection:
        made = "SELECT 1.500::DOUBLE AS x, 1.500::DECIMAL(9,3) AS y, '1.500' AS z,"
        made += " DATE '2024-02-29' AS d"
        connection.execute(f"COPY (SELECT * FROM ({made}), range(30)) TO '{source}'")
    number = {"type": "number", "lower": 0, "upper": 5000, "step": 0.1}
    columns = {"x": number, "y": number, "z": number, "d": GERMAN}
    shape = {
        "unit": "row",
        "people": "pq",
        "budget": BUDGET,
        "decimal": ",",
        "thousands": ".",
        "columns": columns,
    }
    vault.add("pq", source, shape, different_people="the board")
    assert set(stored(vault, "pq", 4)) == {(15, 15, 15000, date(2024, 2, 29))}


def test_a_person_of_two_tables_is_written_in_one_way(vault: OpenVault, tmp_path: Path) -> None:
    """7 and 7.0 would be two persons, each with the contribution bounds of one."""
    people, visits = tmp_path / "people.csv", tmp_path / "visits.csv"
    people.write_text("who,kg\n" + "".join(f"{n},70\n" for n in range(PEOPLE)))
    shape: dict[str, Any] = {
        "unit": "who",
        "people": "two ways",
        "budget": BUDGET,
        "columns": {"kg": WEIGHT},
        "tables": {"visits": {"columns": {"paid": PAID}}},
    }
    visits.write_text("who,paid\n" + "".join(f"{n}.0,5\n" for n in range(PEOPLE)))
    with pytest.raises(Refused, match="one person would count as two"):
        vault.add("twoways", people, shape, tables={"visits": str(visits)})
    visits.write_text("who,paid\n" + "".join(f"{n},5\n" for n in range(PEOPLE)))
    assert vault.add("twoways", people, shape, tables={"visits": str(visits)}).version == "1"
