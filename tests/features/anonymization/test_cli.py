"""The anonymity commands on real files, through the real engine, and what the ledger then says."""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import sfumato
from sfumato.app.command_line import CommandLine
from sfumato.cli.main import run
from sfumato.dp.refusal import Refused
from sfumato.lab.sample_data import MEDICAL, MEDICAL_CARD
from sfumato.release.guarantees.k_anonymity import OWNER_ONLY
from support.small_vaults import make_vault, write_csv

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def ran(*arguments: str | Path) -> tuple[int, str, str]:
        status = run(["anonymity", *map(str, arguments)], CommandLine())
        told = capsys.readouterr()
        return status, told.out, told.err

    return ran


@pytest.fixture
def town(tmp_path: Path) -> Path:
    """A vault that holds the synthetic town."""
    vault = make_vault(tmp_path)
    card = tomllib.loads(MEDICAL_CARD.read_text(), parse_float=Decimal)
    with sfumato.open(vault) as opened:
        opened.add("medical", MEDICAL, card)
    return vault


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_check_tells_the_owner_and_says_that_it_is_for_them(say: Say) -> None:
    status, out, _ = say("check", MEDICAL, "--quasi", "age,zip", "--sensitive", "salary", "--json")
    found = json.loads(out)
    assert (status, found["k"], found["rows"], found["classes"]) == (0, 1, 1000, 446)
    assert found["for"] == OWNER_ONLY
    assert found["worst"][0]["size"] == 1
    assert found["sensitive"]["salary"]["enhanced_beta"] is None
    assert say("check", MEDICAL, "--quasi", "age,zip")[1].startswith(f"[{OWNER_ONLY}]")


def test_without_quasi_identifiers_all_other_columns_are(say: Say) -> None:
    found = json.loads(say("check", MEDICAL, "--sensitive", "has_rare_disease", "--json")[1])
    assert found["quasi"] == ["age", "zip", "salary"]


@pytest.mark.parametrize("method", ["global", "local", "mondrian"])
def test_what_is_written_has_the_k_and_the_l_that_were_asked(
    say: Say, tmp_path: Path, method: str
) -> None:
    out = tmp_path / "out.csv"
    status, _, _ = say(
        "reach", MEDICAL, "--quasi", "age,zip", "--sensitive", "salary", "--k", "5", "--l", "3",
        "--method", method, "--suppress", "0.05" if method == "global" else "0", "--out", out,
    )  # fmt: skip
    assert status == 0
    assert list(rows(out)[0]) == ["age", "zip", "salary"]  # and nothing that was not named
    found = json.loads(
        say("check", out, "--quasi", "age,zip", "--sensitive", "salary", "--json")[1]
    )
    assert found["k"] >= 5
    assert found["sensitive"]["salary"]["l"] >= 3
    assert found["rows"] >= 950


def test_rows_come_out_in_an_order_of_their_own(say: Say, tmp_path: Path) -> None:
    """The same rows in another order make the same file: no place tells anything."""
    lines = MEDICAL.read_text().splitlines(keepends=True)
    other, files = tmp_path / "other.csv", [tmp_path / "a.csv", tmp_path / "b.csv"]
    other.write_text("".join([lines[0], *reversed(lines[1:])]))
    for source, out in zip((MEDICAL, other), files, strict=True):
        say("reach", source, "--quasi", "age,zip", "--k", "5", "--method", "local", "--out", out)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_rules_are_proposed_reviewed_and_used_again(say: Say, tmp_path: Path) -> None:
    rules, out = tmp_path / "rules.toml", tmp_path / "out.csv"
    assert "[16, 24)" in say("hierarchies", MEDICAL, "--quasi", "age,zip", "--out", rules)[1]
    rules.write_text(rules.read_text().replace("[2.0, 8.0, 32.0]", "[50]"))
    asked = ("reach", MEDICAL, "--quasi", "age", "--k", "5", "--hierarchies", rules)
    status, told, _ = say(*asked, "--out", out)
    assert status == 0
    assert "Hierarchies given but not used: zip." in told
    assert "Hierarchies proposed, not given, for: age." in say(*asked[:-2])[1]
    rules.write_text(rules.read_text().replace('["age"]', '["Age"]'))
    status, _, err = say(*asked)
    assert (status, "'Age'" in err, "'age'" in err) == (3, True, True)
    twice = ("--taxonomy", f"zip={rules}")
    assert say(*asked, *twice)[0] == 2
    assert {row["age"] for row in rows(out)} == {"[0, 50)", "[50, 100)"}
    assert "No ledger records it" in told


def test_a_taxonomy_pseudonyms_and_a_kept_column(say: Say, tmp_path: Path) -> None:
    table = write_csv(
        tmp_path / "t.csv", ("name", "job", "s"), [(f"n{i % 3}", "ab"[i % 2], i) for i in range(6)]
    )
    (tmp_path / "jobs.csv").write_text("a,any\nb,any\n")
    (tmp_path / "key").write_bytes(bytes(32))
    out = tmp_path / "out.csv"
    arguments = (
        "reach", table, "--quasi", "job", "--k", "4", "--taxonomy", f"job={tmp_path / 'jobs.csv'}",
        "--pseudonyms", "name", "--keep", "s", "--out", out,
    )  # fmt: skip
    assert "needs a secret key" in say(*arguments)[2]
    assert say(*arguments, "--key", tmp_path / "key")[0] == 0
    made = rows(out)
    assert {row["job"] for row in made} == {"any"}
    assert len({row["name"] for row in made}) == 3
    assert not {row["name"] for row in made} & {"n0", "n1", "n2"}


def test_columns_are_cut_rounded_and_averaged_before_all_else(say: Say, tmp_path: Path) -> None:
    numbers = [(n, n, n) for n in range(10)]
    table, out = write_csv(tmp_path / "t.csv", ("a", "b", "c"), numbers), tmp_path / "out.csv"
    how = ("--cut", "a=2..7", "--round", "b=5", "--average", "c=5", "--keep", "b,c")
    assert say("reach", table, "--quasi", "a", "--k", "1", *how, "--out", out)[0] == 0
    made = rows(out)
    assert {row["a"] for row in made} == {"<2", ">7", "2", "3", "4", "5", "6", "7"}
    assert {row["b"] for row in made} == {"0", "5", "10"}
    assert {row["c"] for row in made} == {"2", "7"}
    asked = ("reach", table, "--quasi", "a", "--k", "1")
    assert say(*asked, "--cut", "a=x")[0] == 2
    for wrong in (
        ("--average", "c=nan"), ("--average", "c=2.5"), ("--average", "c=0"), ("--round", "c=nan"),
        ("--round", "c=1e-320"), ("--cut", "c=nan..2"), ("--cut", "c=inf..inf"),
        ("--recursive", "2,0"), ("--suppress", "nan"), ("--method", "local", "--suppress", "0.1"),
    ):  # fmt: skip
        assert say(*asked, "--keep", "c", *wrong)[0] == 3, wrong
    assert say(*asked, "--keep", "c", "--cut", "c=-inf..5")[0] == 0


def test_columns_are_averaged_together(say: Say, tmp_path: Path) -> None:
    numbers = [(n % 2 * 100 + n, n % 2 * 70 + n) for n in range(10)]
    table, out = write_csv(tmp_path / "t.csv", ("a", "b"), numbers), tmp_path / "out.csv"
    asked = ("reach", table, "--quasi", "a,b", "--k", "5", "--out", out)
    assert say(*asked, "--average", "a,b=5")[0] == 0
    assert {(row["a"], row["b"]) for row in rows(out)} == {("4", "4"), ("105", "75")}
    assert say(*asked, "--average", "a,a=5")[0] == 3
    assert say(*asked, "--average", "a,z=5")[0] == 3
    assert say(*asked, "--cut", "a,b=0..5")[0] == 3


def test_texts_come_out_as_they_went_in(say: Say, tmp_path: Path) -> None:
    columns = ("land", "phone", "code", "version", "share", "big")
    lines = [
        ("NA", "+491", "1_0", "1.1", "1.50", "9" * 400),
        ("DE", "+492", "2_0", "1.10", "2.00", "1"),
        ("", "+491", "007", "1.2", "0.5", "2"),
    ]
    table = write_csv(tmp_path / "t.csv", ("q", *columns), [("a", *line) for line in lines])
    for method in ("global", "local", "mondrian"):
        for quasi, keep in (("q", ",".join(columns)), (",".join(["q", *columns]), "")):
            out = tmp_path / f"{method}{len(keep)}.csv"
            named = ("--quasi", quasi, "--keep", keep, "--k", "1", "--method", method)
            assert say("reach", table, *named, "--out", out)[0] == 0
            made = {tuple(row[name] for name in columns) for row in rows(out)}
            assert made == set(lines)


def test_no_letter_of_a_cell_breaks_a_row(say: Say, tmp_path: Path) -> None:
    table, out = tmp_path / "t.csv", tmp_path / "out.csv"
    odd = ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", "a;b", "", "é", "e\u0301", "a\u2028b", "a\tb"]
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([("q", "s"), *(("x", s) for s in odd)])
    asked = ("reach", table, "--quasi", "q", "--keep", "s", "--k", "11")
    assert say(*asked, "--out", out)[0] == 0
    with out.open(newline="", encoding="utf-8") as file:
        assert sorted(row["s"] for row in csv.DictReader(file)) == sorted(odd)
    assert json.loads(say("check", out, "--json")[1])["rows"] == len(odd)
    assert out.read_bytes().startswith(b"q,s\nx,\nx,")


def test_a_file_says_nothing_to_the_terminal(say: Say, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(b'a\x07,s\n"\x1b]0;x\x07\ny",1\n\xe2\x80\xae,1\n' + b"x" * 99 + b",1\n")
    for line in (
        ("check", table), ("check", table, "--quasi", "no"), ("unique", table),
        ("hierarchies", table, "--quasi", "a\x07"), ("leaks", table, table),
        ("reach", table, "--quasi", "a\x07", "--k", "3", "--keep", "s"),
    ):  # fmt: skip
        _, out, err = say(*line)
        assert all(part.isprintable() for part in (out + err).split("\n")), line
        assert max(map(len, out.split("\n"))) < 300
    told = say("check", table)[1]
    assert r"\x1b]0;x\x07\ny" in told
    lines = told.split("Worst classes first:\n")[1].split("\n")[:5]
    assert len({len(line) for line in lines}) == 1  # one under the other


def test_cells_that_a_spreadsheet_would_compute_are_named(say: Say, tmp_path: Path) -> None:
    lines = [("x", "-1.5", "=1+1", "a"), ("x", "2", "b", " @c"), ("x", "-3", "+491", "d=")]
    table = write_csv(tmp_path / "t.csv", ("q", "n", "f", "g"), lines)
    asked = ("reach", table, "--quasi", "q", "--keep", "n,f,g", "--k", "3")
    assert json.loads(say(*asked, "--json")[1])["formulas"] == ["f", "g"]
    assert "begin like a formula, and a spreadsheet would compute them: f, g." in say(*asked)[1]
    assert "formula" not in say("reach", table, "--quasi", "q", "--keep", "n", "--k", "3")[1]


def test_what_cannot_be_reached_is_refused_with_how_close_one_gets(
    say: Say, tmp_path: Path
) -> None:
    asked = ("reach", MEDICAL, "--quasi", "age", "--sensitive", "has_rare_disease", "--k", "2")
    status, _, err = say(*asked, "--entropy-l", "2", "--out", tmp_path / "o")
    assert status == 3
    assert re.search(r"The nearest one suppresses [\d,]+ of 1,000 rows", err)
    assert not (tmp_path / "o").exists()


def test_what_no_table_could_have_is_refused_in_its_own_words(say: Say, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", ("age", "ill"), [(n, n % 2) for n in range(20)])
    asked = ("reach", table, "--quasi", "age", "--sensitive", "ill")
    for method in ("global", "local", "mondrian"):
        said = say(*asked, "--method", method, "--k", "21")
        assert (said[0], "the table's 20 rows" in said[2]) == (3, True)
        said = say(*asked, "--method", method, "--k", "2", "--l", "3")
        assert (said[0], "2 values of a sensitive column" in said[2]) == (3, True)
    empty = write_csv(tmp_path / "e.csv", ("age", "ill"), [])
    assert "The table of held-back rows" in say("leaks", table, table, "--held-back", empty)[2]


def test_what_blunting_took_is_not_called_nothing(say: Say, tmp_path: Path) -> None:
    """An age foretells an illness; rounded to one age it does not, and no loss shows it."""
    lines = [(n % 41, "yes" if n % 41 < 20 else "no") for n in range(205)]
    table = write_csv(tmp_path / "t.csv", ("age", "ill"), lines)
    asked = ("reach", table, "--quasi", "age", "--sensitive", "ill", "--k", "5")
    said = say(*asked, "--round", "age=1000")[1]
    assert "columns coarsened before, age, are not included" in said
    assert "100.0% before, " in said
    assert "100.0% after" not in said


def test_a_file_that_is_there_is_not_written_over(say: Say, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    assert say("reach", MEDICAL, "--quasi", "age", "--k", "5", "--out", out)[0] == 3
    assert out.read_text() == "mine"


def test_what_cannot_be_written_is_refused_before_anything_is(say: Say, tmp_path: Path) -> None:
    rules, link = tmp_path / "rules.toml", tmp_path / "link.csv"
    rules.write_text("reviewed")
    link.symlink_to(tmp_path / "nowhere")
    assert say("hierarchies", MEDICAL, "--quasi", "age", "--out", rules)[0] == 3
    assert rules.read_text() == "reviewed"
    asked = ("reach", MEDICAL, "--quasi", "age", "--k", "5", "--out")
    for out in (link, tmp_path / "no-folder" / "x.csv"):
        assert say(*asked, out)[0] == 3
    assert say(*asked, tmp_path / "new.csv", "--picture", tmp_path / "bad.xyz")[0] == 3
    assert say(*asked, tmp_path / "new.csv", "--picture", rules)[0] == 3
    assert say(*asked, tmp_path / "new.svg", "--picture", tmp_path / "new.svg")[0] == 3
    for name in ("x" * 5000, "x" * 5000 + "/y", "x\0y"):
        assert say(*asked, name)[0] == 3
    assert rules.read_text() == "reviewed"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "rules.toml"]


def test_two_columns_of_one_name_are_refused(say: Say, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("age, age,zip\n1,2,3\n4,5,6\n")
    status, _, err = say("check", table)
    assert (status, "the same name" in err) == (3, True)


def test_the_picture_marks_the_chosen_k(say: Say, tmp_path: Path) -> None:
    picture = tmp_path / "p.json"
    say(
        "reach",
        MEDICAL,
        "--quasi",
        "age,zip",
        "--k",
        "7",
        "--method",
        "local",
        "--picture",
        picture,
    )
    spec = json.loads(picture.read_text())
    points = spec["data"]["values"]
    assert [one["k"] for one in points if one["chosen"]] == ["k = 7"]
    assert spec["title"]["subtitle"][0].startswith("k-anonymous (not DP). Owner-only.")
    assert len(points) == 8


def test_leaks_of_a_copy_are_told(say: Say) -> None:
    found = json.loads(say("leaks", MEDICAL, MEDICAL, "--json")[1])
    assert (found["whole"], found["same_place"], found["distance"]) == (1000, 1000, 0.0)


def test_unique_choices_are_listed_most_telling_first(say: Say) -> None:
    found = json.loads(say("unique", MEDICAL, "--most", "2", "--json")[1])
    assert found["choices"][0]["columns"] == ["age", "salary"]
    assert max(len(one["columns"]) for one in found["choices"]) == 2


@pytest.mark.parametrize(("header", "lines", "k"), [
    (("a", "b"), [], 0),
    (("a", "b"), [("x", "y")], 1),
    (("a", "b"), [("", "1"), ("", "1"), ("", "1")], 3),
    (("a", "b"), [("", "1"), ("n/a", "1"), ("5", "1")], 1),
    (("a", "b c"), [("1", "x"), ("true", "x"), ("1", "x")], 1),
], ids=["no rows", "one row", "missing and equal", "missing in numbers", "mixed"])  # fmt: skip
def test_small_and_odd_tables_are_read(
    say: Say, tmp_path: Path, header: tuple[str, ...], lines: list[tuple[str, ...]], k: int
) -> None:
    table = write_csv(tmp_path / "t.csv", header, lines)
    assert json.loads(say("check", table, "--json")[1])["k"] == k


def test_of_no_rows_no_k_is_said_to_be_reached(say: Say, tmp_path: Path) -> None:
    table = write_csv(tmp_path / "t.csv", ("a", "b"), [])
    assert "no row is in it" in say("reach", table, "--quasi", "a", "--k", "5")[1]


def test_a_file_that_is_no_table_is_refused_without_its_content(say: Say, tmp_path: Path) -> None:
    bad = tmp_path / "t.csv"
    bad.write_text('a,b\n"secret')
    status, out, err = say("check", bad)
    assert status == 3
    assert "secret" not in out + err
    assert "does not exist" in say("check", tmp_path / "absent.csv")[2]
    assert "unknown-column" in say("check", MEDICAL, "--quasi", "height")[2]


def test_a_table_handed_out_stands_in_the_ledger_before_it_is_written(
    say: Say, town: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    said = say(
        "reach", MEDICAL, "--quasi", "age,zip", "--sensitive", "has_rare_disease", "--k", "5",
        "--out", out, "--data-set", "medical", "--vault", town, "--json",
    )[1]  # fmt: skip
    entry = json.loads(said)["handed_out"]
    assert entry["guarantee"] == "k-anonymous (not DP)"
    with sfumato.open(town) as vault:
        kinds = {e.seq: (e.kind, e.body) for e in vault.house.ledger.store.entries()}
        assert kinds[entry["seq"]][0] == "not-dp-release"
        assert "has_rare_disease" in kinds[entry["seq"]][1]
        assert vault.house.ledger.verified()["ok"] is True


def test_later_receipts_the_card_and_the_sheet_say_what_is_not_dp(
    say: Say, town: Path, tmp_path: Path
) -> None:
    """Soundness rule 9: DP releases only; N non-DP releases exist."""
    sql = "SELECT COUNT(*) FROM medical"
    with sfumato.open(town) as vault:
        before = vault["medical"].ask(sql, epsilon=0.1)
        assert "not_dp" not in before.receipt
        for number in range(2):
            say("reach", MEDICAL, "--quasi", "age", "--k", "5", "--out", tmp_path / f"{number}",
                "--data-set", "medical", "--vault", town)  # fmt: skip
        after = vault["medical"].ask(sql, epsilon=0.2)
        told = "DP releases only; 2 non-DP releases exist"
        assert after.receipt["not_dp"] == told
        assert told in repr(after)
        assert told in repr(vault["medical"].card)
        sheet: Any = vault.house.desk.audit.sheet(int(str(after.receipt["seq"])))
        assert sheet["earlier"]["not_dp"] == 2
    with sfumato.open(town) as again:  # and in a process that has read nothing yet
        assert again["medical"].ask(sql, epsilon=0.2).receipt["not_dp"] == told


def test_a_file_that_is_there_is_not_said_to_be_handed_out(
    say: Say, town: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    status, _, _ = say("reach", MEDICAL, "--quasi", "age", "--k", "5", "--out", out,
                       "--data-set", "medical", "--vault", town)  # fmt: skip
    assert status == 3
    with sfumato.open(town) as vault:
        assert vault.house.ledger.not_dp("synthetic-town") == 0


def test_only_the_owner_hands_out_and_only_of_what_is_there(town: Path, tmp_path: Path) -> None:
    from sfumato.features.anonymization import Goal, Recoding

    how = Recoding(("age",), Goal(5))
    with sfumato.open(town, user="ann") as vault, pytest.raises(Refused, match="not-allowed"):
        vault.hand_out("medical", how)
    with sfumato.open(town) as vault, pytest.raises(Refused, match="unknown-data-set"):
        vault.hand_out("other", how)


def test_nothing_is_written_if_the_ledger_cannot_be(say: Say, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    status, _, err = say(
        "reach", MEDICAL, "--quasi", "age", "--k", "5", "--out", out, "--data-set", "medical",
        "--vault", tmp_path / "absent",
    )  # fmt: skip
    assert (status, out.exists()) == (3, False)
    assert "vault-missing" in err
