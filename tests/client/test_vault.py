"""The Python client on a real vault; with epsilon 1000 the noise is none, and answers exact."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from statistics import mean

import pytest

import sfumato
from sfumato.app.vault import OpenVault
from sfumato.dp.mechanisms.noise import Noise
from sfumato.dp.refusal import Refused
from sfumato.release.noise_pool import NoisePool
from sfumato.system.randomness import SystemRandomSource
from support.small_vaults import card, make_vault, open_with, write_csv

CARD = """
unit = "who"
people = "visitors"
version = "1"
budget = { epsilon = 1000, delta = 0 }
nulls = ["n/a", ""]
max_groups = %d
max_rows = %d
[ask]
who = ["researchers"]
[columns.place]
type = "text"
keys = ["north", "south", "east"]
[columns.sick]
type = "boolean"
[columns.cost]
type = "number"
lower = -1
upper = 10
step = 0.01
[columns.age]
type = "integer"
lower = 0
upper = 110
[columns.day]
type = "date"
"""
HEADER = ("who", "place", "sick", "cost", "age", "day", "secret")
ROWS = [
    ("a", "north", "true", "1.005", "30", "2026-01-01", "x"),
    ("b", " north ", "false", "2.5", "40", "2026-01-02", "x"),
    ("c", "south", "no", "-99", "200", "2026-01-03", "x"),
    ("d", "south", "yes", "1e9", "n/a", "2026-01-04", "x"),
    ("e", "elsewhere", "true", "3", "50", "2026-01-05", "x"),
    ("f", "", "n/a", "nan", "60.5", "soon", "x"),
    ("", "north", "true", "5", "70", "2026-01-06", "x"),
    ("g", "east", "true", "n/a", "-5", "", "x"),
]
ODD = ("cost", "day")  # columns in which a cell of eight cannot be read


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenVault]:
    folder = tmp_path_factory.mktemp("client")
    source = write_csv(folder / "rows.csv", HEADER, ROWS)
    with open_with(folder, "visits", source, CARD % (1, 1)) as opened:
        yield opened


def exact(vault: OpenVault, sql: str) -> list[tuple[object, ...]]:
    try:
        return list(vault["visits"].ask(sql, epsilon=100, fresh=True).rows)
    except Refused as refused:
        raise AssertionError(refused.cause) from None


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", 7),  # the row of nobody is dropped
        ("WHERE sick", 4),
        ("WHERE NOT sick", 2),
        ("WHERE sick IS NULL", 1),
        ("WHERE age >= 50", 3),  # 50, 61 and the clamped 200
        ("WHERE age BETWEEN 30 AND 40 AND place = 'north'", 2),
    ],
)
def test_counts_are_exact_when_the_noise_is_nothing(
    tmp_path: Path, where: str, expected: int
) -> None:
    source = write_csv(tmp_path / "rows.csv", HEADER, ROWS)
    with open_with(tmp_path, "visits", source, CARD % (1, 1)) as fresh:
        assert exact(fresh, f"SELECT COUNT(*) FROM visits {where}") == [(expected,)]


def test_sums_means_and_keys_are_exact_when_the_noise_is_nothing(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", HEADER, ROWS)
    with open_with(tmp_path, "visits", source, CARD % (1, 1)) as fresh:
        sql = "SELECT place, COUNT(*), COUNT(cost), SUM(age) FROM visits GROUP BY place"
        answer = fresh["visits"].ask(sql, epsilon=1000)
    rows = list(answer.rows)
    assert [row[:3] for row in rows] == [("north", 2, 2), ("south", 2, 2), ("east", 1, 0)]
    assert [row[3] for row in rows] == pytest.approx([70, 110, 0], abs=6)


def test_a_mean_is_clamped_to_the_public_range_and_close_to_the_truth(tmp_path: Path) -> None:
    rows = [(f"p{n}", "north", "true", str(n % 7), "30", "", "x") for n in range(500)]
    source = write_csv(tmp_path / "rows.csv", HEADER, rows)
    with open_with(tmp_path, "visits", source, CARD % (1, 1)) as fresh:
        answer = fresh["visits"].mean("cost").ask(epsilon=100)
        empty = fresh["visits"].where(place="east").mean("cost").ask(epsilon=0.01)
    assert answer.value == pytest.approx(mean(n % 7 for n in range(500)), abs=0.01)
    assert -1 <= float(str(empty.value)) <= 10
    ((low, high),) = [pair for pair in empty.interval[0] if pair is not None]
    assert -1 <= low < high <= 10  # the whole of it, but once in some hundred tries
    assert high - low > 1


def test_the_builder_and_sql_are_one_question(vault: OpenVault) -> None:
    built = vault["visits"].where(age=(20, 60), sick=True).group_by("place").count().mean("cost")
    first = built.ask(epsilon=1)
    sql = (
        "SELECT place AS p, AVG(cost) AS m, COUNT(*) AS n FROM visits "
        "WHERE sick AND age BETWEEN 20 AND 60 GROUP BY place"
    )
    again = vault["visits"].ask(sql, epsilon=1.0)
    assert again.receipt["free"] is True
    assert [(r[0], r[2], r[1]) for r in again.rows] == [(r[0], r[1], r[2]) for r in first.rows]


def test_the_builder_speaks_lists_nulls_and_open_ranges(vault: OpenVault) -> None:
    built = vault["visits"].where(place=["north", "south"], age=(65, None), day=None).count()
    says = built.price(epsilon=0.1)["says"]
    assert says == (
        "the number of rows, where place is one of 'north', 'south' "
        "and age >= 65 and day is missing"
    )


def test_an_answer_goes_into_frames_with_its_error_bars(vault: OpenVault) -> None:
    answer = vault["visits"].group_by("place").count(name="n").ask(epsilon=1)
    columns = ["place", "n", "n_std", "n_low", "n_high"]
    assert list(answer.to_pandas().columns) == columns
    assert answer.to_polars().columns == columns
    assert answer.to_arrow().column_names == columns
    frame = answer.frame()
    assert frame["n_low"] == [int(str(n)) - 3 for n in frame["n"]]


def test_everything_shows_itself_in_text_and_html(vault: OpenVault) -> None:
    data_set = vault["visits"]
    answer = data_set.group_by("place").count().ask(epsilon=1)
    shown = (vault, data_set, data_set.card, data_set.budget, answer)
    for thing in (*shown, data_set.count().price(epsilon=1)):
        assert "visits" in repr(thing) or "±" in repr(thing) or "left" in repr(thing)
        assert "<" in thing._repr_html_()
    assert "±" in repr(answer)


def test_a_users_word_in_a_name_is_escaped_in_html(vault: OpenVault) -> None:
    answer = vault["visits"].count(name="<script>alert(1)</script>").ask(epsilon=1)
    assert "<script>" not in answer._repr_html_()


def test_text_budgets_are_refused_in_python(vault: OpenVault) -> None:
    wrong: list[object] = ["0.5", True, float("nan"), float("inf"), -1, 0, 1e-320, None, [1]]
    for epsilon in wrong:
        with pytest.raises(Refused) as refused:
            vault["visits"].count().ask(epsilon=epsilon)  # type: ignore[arg-type]  # wrong
        assert refused.value.code == "bad-budget"


def test_a_delta_of_zero_is_passed_on(vault: OpenVault) -> None:
    assert vault["visits"].count().ask(epsilon=0.5, delta=0).receipt["delta"] == 0


def test_one_salt_a_vault_decides_whose_rows_and_groups_are_kept(tmp_path: Path) -> None:
    places = ("north", "south", "east")
    rows = [(f"p{n % 60}", places[n % 3], "true", "1", "30", "", "x") for n in range(59, 59 + 360)]
    rows += [(f"p{n}", places[n % 3], "true", "1", "30", "", "x") for n in range(60)]
    rows += [(f"p{n}", places[(n + 1) % 3], "true", "1", "30", "", "x") for n in range(60)]
    kept = []
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = write_csv(folder / "rows.csv", HEADER, rows)
        with open_with(folder, "visits", source, CARD % (1, 1)) as fresh:
            sql = "SELECT place, COUNT(*) FROM visits GROUP BY place"
            kept.append(tuple(row[1] for row in fresh["visits"].ask(sql, epsilon=1000).rows))
    assert {sum(map(int, map(str, counts))) for counts in kept} == {60}  # one row a person
    assert len(set(kept)) > 1


def test_the_same_people_under_another_name_are_refused_or_linked(tmp_path: Path) -> None:
    rows = [(f"p{n}", "north", "true", str(n % 7), str(n % 90), "", "x") for n in range(100)]
    source = write_csv(tmp_path / "rows.csv", HEADER, rows)
    other = write_csv(tmp_path / "other.csv", HEADER[::-1], [row[::-1] for row in rows[1:]])
    text = CARD % (1, 1)
    with open_with(tmp_path, "visits", source, text) as fresh:
        fresh["visits"].count().ask(epsilon=600)
        renamed = text.replace('people = "visitors"', 'people = "others"')
        with pytest.raises(Refused) as refused:
            fresh.add("copy", other, card(renamed))
        assert refused.value.code == "same-people"
        fresh.add("copy", other, card(text))
        with pytest.raises(Refused) as spent:
            fresh["copy"].count().ask(epsilon=600)
        assert spent.value.code == "budget-exceeded"
        assert spent.value.facts["account"] == "people:visitors"
        fresh.add("apart", other, card(renamed), different_people="second person")
        fresh["apart"].count().ask(epsilon=600)


def test_what_a_killed_add_left_behind_is_gone_after_the_next(tmp_path: Path) -> None:
    text, source = CARD % (1, 1), write_csv(tmp_path / "rows.csv", HEADER, ROWS)
    with open_with(tmp_path, "visits", source, text) as vault:
        tables, people = vault.house.folder / "tables", vault.house.folder / "people"
        before = {*tables.iterdir(), *people.iterdir()}
        (tables / ".prepare-x").mkdir()
        left = (".prepare-x/rows", "00ff.duckdb", "00ff.duckdb.json")
        for name in left:
            (tables / name).write_text("rows")
        (people / "00ff.json").write_text("{}")
        vault.add("visits", source, {**card(text), "version": "2"}, accept_unreadable=ODD)
        after = {*tables.iterdir(), *people.iterdir()}
        assert before < after
        assert len(after) == 2 * len(before)
        assert vault["visits"].count().ask(epsilon=1).rows


def test_a_new_version_never_renews_the_budget(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "rows.csv", HEADER, ROWS)
    text = CARD % (1, 1)
    with open_with(tmp_path, "visits", source, text) as fresh:
        first = fresh["visits"].count().ask(epsilon=600)
        with pytest.raises(Refused) as twice:
            fresh.add("visits", source, card(text))
        assert twice.value.code == "data-set-exists"
        second = card(text.replace('version = "1"', 'version = "2"'))
        fresh.add("visits", source, second, accept_unreadable=ODD)
        assert fresh["visits"].card["version"] == "2"
        with pytest.raises(Refused) as refused:
            fresh["visits"].count().ask(epsilon=600)
        assert refused.value.code == "budget-exceeded"
        assert first.receipt["version"] == "1"


def test_a_fork_hands_out_no_noise_that_its_parent_has() -> None:
    pool, noise = NoisePool(SystemRandomSource()), Noise("laplace", Fraction(1000))
    pool.take(noise, 1)  # the rest of the block waits in the pool

    def child(answers: SimpleQueue[list[int]]) -> None:
        answers.put(pool.take(noise, 1000).tolist())

    answers: SimpleQueue[list[int]] = get_context("fork").SimpleQueue()
    children = [get_context("fork").Process(target=child, args=(answers,)) for _ in range(8)]
    for process in children:
        process.start()
    drawn = [answers.get() for _ in children] + [pool.take(noise, 1000).tolist()]
    for process in children:
        process.join()
    assert len({tuple(draws) for draws in drawn}) == 9


def test_a_vault_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        sfumato.open(tmp_path)
    assert refused.value.code == "vault-missing"
    make_vault(tmp_path)
    with pytest.raises(Refused) as again:
        sfumato.create(tmp_path / "vault")
    assert again.value.code == "vault-exists"


def test_a_card_may_be_given_with_exact_ratios(tmp_path: Path) -> None:
    shape = card(CARD % (1, 1))
    shape["columns"]["cost"]["step"] = Fraction(1, 4)
    source = write_csv(tmp_path / "v.csv", HEADER, ROWS)
    with sfumato.open(make_vault(tmp_path)) as vault:
        vault.add("clinic", source, shape, accept_unreadable=ODD)
        assert vault["clinic"].card["columns"][2]["step"] == 0.25
        vault["clinic"].ask("SELECT SUM(cost) FROM clinic", epsilon=1)
    with sfumato.open(tmp_path / "vault") as again:
        assert again["clinic"].card["columns"][2]["step"] == 0.25


@pytest.mark.parametrize("name", ["half\udcff", "", "two\nlines"])
def test_names_that_cannot_be_written_down_are_unknown(tmp_path: Path, name: str) -> None:
    source = write_csv(tmp_path / "v.csv", HEADER, ROWS)
    with open_with(tmp_path, "clinic", source, CARD % (1, 1)) as vault:
        with pytest.raises(Refused, match="unknown-data-set"):
            vault[name].ask("SELECT COUNT(*) FROM clinic", epsilon=1)
        place = vault.house.folder
    with sfumato.open(place, user=name) as stranger:
        with pytest.raises(Refused, match="unknown-user"):
            list(stranger)
        with pytest.raises(Refused, match="unknown-user"):
            stranger["clinic"].ask("SELECT COUNT(*) FROM clinic", epsilon=1)
