"""A data set of several tables: added, asked in SQL and Python, repeated free, and charged once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import sfumato
from sfumato import Refused, col
from sfumato.app.vault import OpenVault
from support.small_vaults import card, make_vault, open_with, run, write_csv

CARD = """
unit = "who"
budget = { epsilon = 1000 }
max_groups = 2
max_rows = 20
limits = { rows = 10000, rows_per_person = 20 }
[columns.town]
type = "text"
[columns.cost]
type = "integer"
lower = 0
upper = 100
[tables.people]
limits = { rows = 10000, rows_per_person = 1 }
columns = { sex = { type = "text", keys = ["f", "m"] } }
[tables.towns]
public = true
key = "town"
columns = { town = { type = "text" }, coast = { type = "boolean" } }
"""
SURE = 100
TOWNS = {"A": "yes", "B": "no", "C": ""}


def files(folder: Path, seed: int = 1) -> tuple[dict[str, Path], list[Any], dict[str, str]]:
    dice = Random(seed)
    sexes = {f"p{i}": dice.choice("fm") for i in range(80)}
    visits = [
        (f"p{dice.randrange(90)}", dice.choice("ABCD"), dice.randrange(101)) for _ in range(300)
    ]
    paths = {
        "": write_csv(folder / "visits.csv", ("who", "town", "cost"), visits),
        "people": write_csv(folder / "people.csv", ("who", "sex"), sexes.items()),
        "towns": write_csv(folder / "towns.csv", ("town", "coast"), TOWNS.items()),
    }
    return paths, visits, sexes


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OpenVault, Any, Any]]:
    folder = tmp_path_factory.mktemp("tables")
    paths, visits, sexes = files(folder)
    with open_with(folder, "visits", paths.pop(""), CARD, tables=paths) as vault:
        yield vault, visits, sexes


JOINED = "SELECT sex, COUNT(*), SUM(cost) FROM visits v JOIN people p ON v.who = p.who GROUP BY sex"


def test_a_join_is_answered_about_the_rows_that_are_there(
    asked: tuple[OpenVault, Any, Any],
) -> None:
    vault, visits, sexes = asked
    answer = vault["visits"].ask(JOINED, epsilon=SURE)
    for sex, count, total in answer.rows:
        theirs = [cost for who, _, cost in visits if sexes.get(who) == sex]
        assert count == pytest.approx(len(theirs), abs=40)
        assert total == pytest.approx(sum(theirs), abs=4000)
    assert "visits with people by the person" in str(answer.receipt["says"])


def test_the_builder_asks_the_same_question_and_a_repeat_is_free(
    asked: tuple[OpenVault, Any, Any],
) -> None:
    vault = asked[0]
    built = vault["visits"].join("people").group_by("sex").count().sum("cost")
    first = vault["visits"].ask(JOINED, epsilon=SURE)
    spent = vault["visits"].budget["spent"]["epsilon"]
    again = built.ask(epsilon=SURE)
    assert [row[1:] for row in again.rows] == [row[1:] for row in first.rows]
    assert vault["visits"].budget["spent"]["epsilon"] == spent


SEEN = (
    "SELECT c.kind, COUNT(*), SUM(v.cost) FROM visits v JOIN calls c"
    " ON v.town = c.place AND v.who = c.who GROUP BY c.kind"
)
CALLS = """
[tables.calls]
max_rows = 3
limits = { rows = 10000, rows_per_person = 20 }
columns = { place = { type = "text" }, kind = { type = "text", keys = ["x", "y"] } }
"""


def test_many_rows_of_a_person_meet_many_by_the_person_and_more(tmp_path: Path) -> None:
    """In SQL and Python one question, about the rows that a plain reading finds."""
    paths, visits, _ = files(tmp_path)
    dice = Random(2)
    calls = [(f"p{dice.randrange(90)}", dice.choice("ABC"), dice.choice("xy")) for _ in range(300)]
    paths["calls"] = write_csv(tmp_path / "calls.csv", ("who", "place", "kind"), calls)
    source = paths.pop("")
    with open_with(tmp_path, "visits", source, CARD + CALLS, tables=paths) as vault:
        answer = vault["visits"].ask(SEEN, epsilon=SURE)
        for kind, count, total in answer.rows:
            theirs = [
                cost
                for who, town, cost in visits
                for other, place, of in calls
                if (who, town, kind) == (other, place, of)
            ]
            assert count == pytest.approx(len(theirs), abs=60)
            assert total == pytest.approx(sum(theirs), abs=6000)
        spent = vault["visits"].budget["spent"]["epsilon"]
        built = vault["visits"].join("calls", also=[("town", "place")])
        again = built.group_by("kind").count().sum("cost").ask(epsilon=SURE)
        assert [row[1:] for row in again.rows] == [row[1:] for row in answer.rows]
        assert vault["visits"].budget["spent"]["epsilon"] == spent
        assert "by the person and visits.town = calls.place" in str(answer.receipt["says"])
        with pytest.raises(Refused, match="type-mismatch"):
            vault["visits"].join("calls", also=[("cost", "place")]).count().ask(epsilon=1)


EACH = (
    "SELECT COUNT(*), AVG(v.n), AVG(COALESCE(c.m, 0)) AS calls FROM (SELECT who, COUNT(*) AS n FROM"
    " visits GROUP BY who) v LEFT JOIN (SELECT who, COUNT(*) AS m FROM calls WHERE kind = 'x'"
    " GROUP BY who) c ON c.who = v.who WHERE v.n > 1"
)


def test_one_row_for_each_person_of_two_tables_is_met_by_the_person(tmp_path: Path) -> None:
    """In SQL and Python one question, about the people that a plain reading finds."""
    paths, visits, _ = files(tmp_path)
    dice = Random(3)
    calls = [(f"p{dice.randrange(99)}", dice.choice("ABC"), dice.choice("xy")) for _ in range(300)]
    paths["calls"] = write_csv(tmp_path / "calls.csv", ("who", "place", "kind"), calls)
    source = paths.pop("")
    with open_with(tmp_path, "visits", source, CARD + CALLS, tables=paths) as vault:
        answer = vault["visits"].ask(EACH, epsilon=SURE)
        often = Counter(who for who, _, _ in visits)
        called = Counter(who for who, _, kind in calls if kind == "x")
        theirs = [who for who, n in often.items() if n > 1]
        ((count, mean, made),) = answer.rows
        assert count == pytest.approx(len(theirs), abs=3)
        assert mean == pytest.approx(sum(often[who] for who in theirs) / len(theirs), abs=0.2)
        assert made == pytest.approx(sum(called[who] for who in theirs) / len(theirs), abs=0.2)
        spent = vault["visits"].budget["spent"]["epsilon"]
        others = vault["visits"].of_table("calls").where(kind="x").each_person(m="count")
        built = vault["visits"].each_person(n="count").join_people(others, keep_all=True)
        asked = built.where(col("n") > 1).count().mean("n").mean(col("m").or_else(0))
        assert asked.ask(epsilon=SURE).rows == answer.rows
        assert vault["visits"].budget["spent"]["epsilon"] == spent
        assert "beside their row, if any, from calls (m = count" in str(answer.receipt["says"])


LIVED = (
    "SELECT t.coast, COUNT(*) AS people, SUM(p.n) AS visits FROM (SELECT who, MAX(town) AS town,"
    " COUNT(*) AS n FROM visits GROUP BY who) p JOIN towns t ON t.town = p.town GROUP BY t.coast"
)


def test_a_public_table_is_looked_up_by_what_each_person_has(
    asked: tuple[OpenVault, Any, Any],
) -> None:
    """In SQL and Python one question, about the people that a plain reading finds."""
    vault, visits, _ = asked
    answer = vault["visits"].ask(LIVED, epsilon=SURE)
    often = Counter(who for who, _, _ in visits)
    last = {who: max(town for whose, town, _ in visits if whose == who) for who in often}
    assert {coast for coast, *_ in answer.rows} == {True, False}
    for coast, count, total in answer.rows:
        theirs = [who for who in often if TOWNS.get(last[who]) == ("yes" if coast else "no")]
        assert count == pytest.approx(len(theirs), abs=3)
        assert total == pytest.approx(sum(often[who] for who in theirs), abs=20)
    spent = vault["visits"].budget["spent"]["epsilon"]
    each = vault["visits"].each_person(town=("maximum", "town"), n="count").look_up("towns")
    again = each.group_by("coast").count(name="people").sum("n", name="visits")
    assert again.ask(epsilon=SURE).rows == answer.rows
    assert vault["visits"].budget["spent"]["epsilon"] == spent
    assert "looked up in towns by town" in str(answer.receipt["says"])


def test_a_public_table_is_looked_up(asked: tuple[OpenVault, Any, Any]) -> None:
    vault, visits, _ = asked
    text = "SELECT coast, COUNT(*) FROM visits LEFT JOIN towns USING (town) GROUP BY coast"
    rows: Any = vault["visits"].ask(text, epsilon=SURE).rows
    found = dict(rows)
    for coast, said in ((True, "yes"), (False, "no")):
        assert found[coast] == pytest.approx(
            sum(TOWNS.get(town) == said for _, town, _ in visits), abs=8
        )


def test_another_table_alone_and_a_table_of_people_over_a_join(
    asked: tuple[OpenVault, Any, Any],
) -> None:
    vault, visits, sexes = asked
    (people,) = vault["visits"].ask("SELECT COUNT(*) FROM people", epsilon=SURE).rows[0]
    assert people == pytest.approx(80, abs=3)
    (mean,) = (
        vault["visits"]
        .of_table("people")
        .join("visits", keep_all=True)
        .each_person(n=("count_values", "cost"))
        .mean("n")
        .ask(epsilon=SURE)
        .rows[0]
    )
    assert mean == pytest.approx(sum(who in sexes for who, _, _ in visits) / 80, abs=0.5)


def test_the_card_shows_its_tables(asked: tuple[OpenVault, Any, Any]) -> None:
    shown = repr(asked[0]["visits"].card)
    for words in ("table people: rows of the same people (who)", "public, looked up by town",
                  "people.sex", "towns.coast"):  # fmt: skip
        assert words in shown


def test_every_table_is_charged_to_the_same_people(asked: tuple[OpenVault, Any, Any]) -> None:
    vault = asked[0]
    before = vault["visits"].budget["people"]["spent"]["epsilon"]
    vault["visits"].ask("SELECT COUNT(*) FROM people WHERE sex = 'f'", epsilon=2)
    assert vault["visits"].budget["people"]["spent"]["epsilon"] == before + 2


Change = Callable[[dict[str, Path]], object]
WRONG: dict[str, Change] = {
    "one is missing": lambda paths: paths.__delitem__("people"),
    "one too many": lambda paths: paths.__setitem__("more", paths["people"]),
    "no such file": lambda paths: paths.__setitem__("people", Path("none.csv")),
    "another table's columns": lambda paths: paths.__setitem__("people", paths["towns"]),
    "a key twice": lambda paths: paths["towns"].write_text("town,coast\nA,yes\n A ,no\n"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_files_are_refused_and_leave_nothing(tmp_path: Path, what: str) -> None:
    paths, _, _ = files(tmp_path)
    source = paths.pop("")
    WRONG[what](paths)
    place = make_vault(tmp_path)
    with sfumato.open(place) as vault:
        with pytest.raises(Refused, match="source-unreadable"):
            vault.add("visits", source, card(CARD), tables=paths)
        assert list((place / "tables").iterdir()) == []
        assert list(vault) == []


def test_the_same_people_are_recognised_in_any_table(tmp_path: Path) -> None:
    """A table that was an extra one of another data set is not new people."""
    paths, _, sexes = files(tmp_path)
    source = paths.pop("")
    alone = 'unit = "who"\nbudget = { epsilon = 1 }\ncolumns = { sex = { type = "text" } }'
    with open_with(tmp_path, "visits", source, CARD, tables=paths) as vault:
        assert len(sexes) > 20
        with pytest.raises(Refused, match="same-people"):
            vault.add("others", paths["people"], card(alone))


def test_the_command_line_adds_several_tables(tmp_path: Path) -> None:
    paths, _, _ = files(tmp_path)
    place = make_vault(tmp_path)
    (tmp_path / "card.toml").write_text(CARD)
    given = [f"--with={name}={path}" for name, path in paths.items() if name]
    added = run(
        place, "add", "visits", str(paths[""]), "--card", str(tmp_path / "card.toml"), *given
    )
    assert added.returncode == 0, added.stderr
    shown = run(place, "ask", "visits", JOINED, "--epsilon", "5")
    assert shown.returncode == 0, shown.stderr
    assert "f" in shown.stdout
    missing = run(place, "add", "visits2", str(paths[""]), "--card", str(tmp_path / "card.toml"))
    assert missing.returncode == 3
    assert "--with people=FILE" in missing.stderr


PUBLIC = CARD.replace("[tables.people]", '[tables.people]\npublic = true\nkey = "who"').replace(
    "columns = { sex", 'columns = { who = { type = "text" }, sex'
)
OTHERS = CARD.replace("[tables.people]", '[tables.people]\nunit = "sex"')


@pytest.mark.parametrize("text", [PUBLIC, OTHERS])
def test_a_new_version_keeps_whose_rows_a_table_holds(tmp_path: Path, text: str) -> None:
    paths, _, _ = files(tmp_path)
    source = paths.pop("")
    vault = open_with(tmp_path, "visits", source, CARD, tables=paths)
    with vault, pytest.raises(Refused, match="bad-card"):
        vault.add("visits", source, card('version = "2"\n' + text), tables=paths)


def test_known_people_do_not_come_in_as_a_public_table(tmp_path: Path) -> None:
    paths, _, _ = files(tmp_path)
    source = paths.pop("")
    other = """
unit = "who"
budget = { epsilon = 1 }
columns = { x = { type = "integer", lower = 0, upper = 9 } }
[tables.known]
public = true
key = "who"
columns = { who = { type = "text" }, sex = { type = "text" } }
"""
    new = write_csv(tmp_path / "new.csv", ("who", "x"), [(f"n{i}", i % 10) for i in range(50)])
    vault = open_with(tmp_path, "visits", source, CARD, tables=paths)
    with vault, pytest.raises(Refused, match="same-people"):
        vault.add("new", new, card(other), tables={"known": paths["people"]})


def test_fits_and_checks_take_bounds_of_the_table_that_they_ask(tmp_path: Path) -> None:
    text = """
unit = "who"
budget = { epsilon = 1000 }
columns = { x = { type = "integer", lower = 0, upper = 50 } }
[tables.v.columns.x]
type = "integer"
lower = 0
upper = 100
[tables.v.columns.y]
type = "integer"
lower = 0
upper = 200
"""
    dice = Random(4)
    own = write_csv(tmp_path / "a.csv", ("who", "x"), [(i, dice.randrange(51)) for i in range(90)])
    pairs = [(i, x, 2 * x) for i, x in enumerate(dice.choices(range(101), k=2000))]
    other = write_csv(tmp_path / "b.csv", ("who", "x", "y"), pairs)
    with open_with(tmp_path, "d", own, text, tables={"v": other}) as vault:
        line = vault["d"].of_table("v").linear("y", ["x"], epsilon=100)
        assert line.coefficients["x"].value == pytest.approx(2, abs=0.05)
        found = vault["d"].of_table("v").check_clipping("y", epsilon=50)
        assert found.cuts[1].share == pytest.approx(0.01, abs=0.02)
        for asked in (
            lambda: vault["d"].join("v").linear("y", ["x"], epsilon=1),
            lambda: vault["d"].join("v").check_clipping("y", epsilon=1),
        ):
            with pytest.raises(Refused, match="not-in-language"):
                asked()
        with pytest.raises(Refused, match="not-in-language"):
            vault["d"].linear("x", ["x"], epsilon=1, banana=3)  # type: ignore[call-arg]
