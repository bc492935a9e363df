"""Streams as owners and researchers hold them: charged once, closed once each in order, read free.

Epsilon is so large that noise is nothing to speak of, where a test is about what is counted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import sfumato
from sfumato import col
from sfumato.app.vault import OpenVault
from sfumato.dp.refusal import Refused
from sfumato.release.ledger_guard import Ledger
from sfumato.vault.ledger_entries import Settled
from sfumato.vault.users import Caller
from support.ledger_stores import SetClock
from support.small_vaults import SFUMATO, card, open_with, write_csv
from support.stream_oracle import taken_by_hand

SQL = (
    "SELECT date_trunc('day', day) AS day, RUNNING_COUNT(*) AS so_far FROM visits "
    "WHERE sick GROUP BY day"
)
CARD = """
unit = "who"
people = "town"
version = "%s"
budget = { epsilon = 1000, delta = 1e-6 }
[caps]
user = { epsilon = 900 }
[ask]
who = ["researchers"]
[columns.day]
type = "date"
[columns.sick]
type = "boolean"
[columns.place]
type = "text"
keys = ["a", "b"]
"""
Row = tuple[str, int, str, str]
FIRST: list[Row] = [
    *[("ann", day, "yes", "a") for day in (1, 1, 2, 3, 4)],
    *[("bob", day, "yes", "a") for day in (2, 4, 5)],
    ("cid", 1, "no", "b"),
    ("cid", 3, "yes", "b"),
]
SECOND: list[Row] = [  # bob left, ann has more, dot came, and much of it is late
    *[("ann", day, "yes", "a") for day in (1, 2, 3, 4, 5, 6)],
    *[("dot", day, "yes", "b") for day in (1, 2, 3, 4, 4, 5)],
]
TERMS: dict[str, Any] = {"start": "2026-01-01", "periods": 8, "rows": 2, "epsilon": 800}

OWNER = Caller("owner", frozenset({"own"}))


def source(folder: Path, name: str, rows: list[Row]) -> Path:
    lines = [(who, f"2026-01-{day:02d}", sick, place) for who, day, sick, place in rows]
    return write_csv(folder / f"{name}.csv", ("who", "day", "sick", "place"), lines)


@pytest.fixture
def vault(tmp_path: Path) -> Any:
    with open_with(tmp_path, "visits", source(tmp_path, "first", FIRST), CARD % "1") as made:
        yield made


def add_second(vault: OpenVault, folder: Path) -> None:
    vault.add("visits", source(folder, "second", SECOND), card(CARD % "2"))


def opened(vault: OpenVault, name: str = "daily", **terms: Any) -> dict[str, object]:
    return vault.open_stream("visits", name, SQL, **{**TERMS, **terms})


def until(day: int) -> str:
    return f"2026-01-{day:02d}"


def close(vault: OpenVault, day: int, name: str = "daily") -> dict[str, object]:
    return vault.close_days("visits", name, until=until(day))


def counts(vault: OpenVault, name: str = "daily") -> list[object]:
    return [row[1] for row in vault["visits"].stream(name).rows]


def spent(vault: OpenVault) -> dict[str, float]:
    return {a.name: a.spent.epsilon / 1e9 for a in vault.house.ledger.store.accounts()}


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.code


def by_hand(days: list[tuple[int, list[Row]]]) -> list[int]:
    """Return the running count, each day by the rows that it was closed on."""
    of_days = [
        dict(Counter(who for who, on, sick, _ in rows if (on, sick) == (day, "yes")))
        for day, rows in days
    ]
    totals = [sum(day.values()) for day in taken_by_hand(of_days, 2)]
    return [sum(totals[: n + 1]) for n in range(len(totals))]


# --- paying -------------------------------------------------------------------------------------


def test_all_of_it_is_charged_when_it_is_opened_and_nothing_later(vault: OpenVault) -> None:
    made = opened(vault)
    paid = {"people:town": 800, "data-set:visits": 800, "user:visits/owner": 800}
    assert spent(vault) == pytest.approx(paid)
    assert made["says"] == (
        "the number of rows, where sick = true, running along the day of day, "
        "8 days from 2026-01-01"
    )
    close(vault, 3)
    close(vault, 5)
    vault["visits"].stream("daily")
    assert spent(vault) == pytest.approx(paid)


def test_it_is_charged_before_a_row_is_read_and_nothing_is_read_to_open_it(
    vault: OpenVault,
) -> None:
    before = vault.house.engine.worker_pid()  # type: ignore[attr-defined]  # DuckDB's
    opened(vault)
    assert before is None
    assert vault.house.engine.worker_pid() is None  # type: ignore[attr-defined]


def test_one_that_costs_more_than_is_left_is_refused_and_is_not_there(vault: OpenVault) -> None:
    assert code_of(lambda: opened(vault, epsilon=901)) == "budget-exceeded"
    assert code_of(lambda: vault["visits"].stream("daily")) == "stream-unknown"
    assert code_of(lambda: close(vault, 1)) == "stream-unknown"
    assert sum(spent(vault).values()) == 0


def test_opening_it_again_with_the_same_terms_is_free_and_with_others_is_refused(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault, epsilon=100)
    add_second(vault, tmp_path)
    opened(vault, epsilon=100)
    assert spent(vault)["people:town"] == pytest.approx(100)
    other = [{"epsilon": 99}, {"rows": 3}, {"periods": 9}, {"start": "2026-01-02"}]
    for terms in other:
        assert code_of(lambda t=terms: opened(vault, **{"epsilon": 100, **t})) == "stream-exists"  # type: ignore[misc]
    assert code_of(lambda: opened(vault, "DAILY", epsilon=100)) == "stream-exists"
    assert spent(vault)["people:town"] == pytest.approx(100)


def test_an_operation_of_the_same_name_is_no_stream(vault: OpenVault) -> None:
    vault["visits"].ask("SELECT COUNT(*) FROM visits", epsilon=1, op="stream visits.daily")
    assert code_of(lambda: vault["visits"].stream("daily")) == "stream-unknown"
    assert code_of(lambda: opened(vault)) == "stream-exists"


def test_the_operation_of_a_stream_is_no_question_and_cannot_be_raised(vault: OpenVault) -> None:
    opened(vault, epsilon=1)
    count, op = "SELECT COUNT(*) FROM visits", "stream visits.daily"
    visits = vault["visits"]
    assert code_of(lambda: visits.ask(count, epsilon=1, op=op)) == "op-reused"
    assert code_of(lambda: visits.ask(count, epsilon=2, top_up=op)) == "top-up-impossible"


class CutShort(Ledger):
    """A ledger whose door is killed between the charge and what is settled."""

    def settle(self, user: str, op: str, answer: str, names: Sequence[str] = ()) -> Settled:
        raise KeyboardInterrupt


def test_an_opening_that_was_cut_short_is_paid_once_and_can_be_gone_on_with(
    vault: OpenVault, tmp_path: Path
) -> None:
    whole, ledger = vault.house, vault.house.ledger
    cut = CutShort(ledger.store, ledger.anchor, ledger.signer)
    door = replace(whole.desk.streams.door, ledger=cut)
    desk = replace(whole.desk, streams=replace(whole.desk.streams, door=door))
    with pytest.raises(KeyboardInterrupt):
        opened(OpenVault(replace(whole, desk=desk), "owner"))
    assert spent(vault)["people:town"] == pytest.approx(800)
    assert code_of(lambda: close(vault, 1)) == "stream-unknown"
    add_second(vault, tmp_path)
    opened(vault)
    assert spent(vault)["people:town"] == pytest.approx(800)
    assert close(vault, 1)["closed_now"] == 1


# --- counting -----------------------------------------------------------------------------------


def test_each_person_has_c_rows_over_the_whole_stream(vault: OpenVault) -> None:
    opened(vault)
    close(vault, 8)
    assert (
        counts(vault) == by_hand([(day, FIRST) for day in range(1, 9)]) == [2, 3, 4, 5, 5, 5, 5, 5]
    )


def test_used_rows_survive_a_new_version_and_late_rows_never_count(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault)
    close(vault, 3)
    add_second(vault, tmp_path)
    close(vault, 6)
    days = [*((day, FIRST) for day in (1, 2, 3)), *((day, SECOND) for day in (4, 5, 6))]
    assert counts(vault) == by_hand(days) == [2, 3, 4, 6, 6, 6]  # ann and dot had no more


def test_closing_day_by_day_gives_what_closing_at_once_gives(vault: OpenVault) -> None:
    opened(vault, "one", epsilon=400)
    opened(vault, "all", epsilon=400)
    for day in range(1, 6):
        close(vault, day, "one")
    close(vault, 5, "all")
    assert counts(vault, "one") == counts(vault, "all")


def test_a_week_is_closed_when_it_is_over(vault: OpenVault) -> None:
    weekly = SQL.replace("'day'", "'week'")
    terms = {**TERMS, "start": "2025-12-29", "periods": 2}
    vault.open_stream("visits", "weekly", weekly, **terms)
    assert code_of(lambda: close(vault, 3, "weekly")) == "stream-out-of-order"
    assert close(vault, 6, "weekly")["closed_now"] == 1
    assert counts(vault, "weekly") == [5]


def test_a_question_that_was_built_is_the_same_as_one_that_was_written(vault: OpenVault) -> None:
    built = (
        vault["visits"]
        .where(col("SICK") == True)  # noqa: E712  # a column, not a truth value
        .group_by(day=col("Day").trunc("day"))
        .running_count(name="so_far")
    )
    opened(vault, epsilon=100)
    vault.open_stream("visits", "daily", built, **{**TERMS, "epsilon": 100})
    assert spent(vault)["people:town"] == pytest.approx(100)


# --- once, and in order -------------------------------------------------------------------------


def test_a_day_cannot_be_closed_twice_nor_before_another_nor_beyond_the_last(
    vault: OpenVault,
) -> None:
    opened(vault)
    assert close(vault, 3)["closed_now"] == 3
    before = counts(vault)
    for day in (1, 2, 3, 9, 31):
        assert code_of(lambda d=day: close(vault, d)) == "stream-out-of-order"  # type: ignore[misc]
    assert code_of(lambda: vault.close_days("visits", "daily", until="2025-12-31")) == (
        "stream-out-of-order"
    )
    assert counts(vault) == before
    assert close(vault, 8)["closed"] == 8
    assert code_of(lambda: close(vault, 8)) == "stream-out-of-order"


def test_of_two_who_close_at_once_one_closes_and_the_other_is_refused(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault, epsilon=1)
    command = [*SFUMATO, "stream", "close", "visits", "daily", "--until", until(5), "--json"]
    settings = {**os.environ, "SFUMATO_VAULT": str(tmp_path / "vault")}
    both = [subprocess.Popen(command, env=settings, stdout=subprocess.PIPE) for _ in range(2)]
    said = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert sorted(process.returncode for process in both) == [0, 3]
    assert {shape["refused"]["code"] for shape in said if "refused" in shape} == {
        "stream-out-of-order"
    }
    entries = [e for e in vault.house.ledger.store.entries() if e.kind == "stream-closed"]
    assert [json.loads(entry.body)["end"] for entry in entries] == [1, 2, 3, 4, 5]


def test_a_frozen_data_set_has_no_stream_opened_and_no_day_closed(
    vault: OpenVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(vault, epsilon=100)
    close(vault, 1)
    vault.call("freeze", {"data_set": "visits"})
    before = spent(vault), counts(vault)
    assert code_of(lambda: opened(vault, "other", epsilon=1)) == "data-set-frozen"
    assert code_of(lambda: close(vault, 3)) == "data-set-frozen"
    assert (spent(vault), counts(vault)) == before
    vault.call("thaw", {"data_set": "visits"})
    note = Ledger.note

    def noted(ledger: Ledger, kind: str, body: dict[str, object]) -> object:
        head = note(ledger, kind, body)
        if kind == "stream-closed":
            vault.call("freeze", {"data_set": "visits"})
        return head

    monkeypatch.setattr(Ledger, "note", noted)
    assert code_of(lambda: close(vault, 4)) == "data-set-frozen"  # after one day of three
    assert len(counts(vault)) == 2


def test_a_day_that_has_not_begun_cannot_be_closed(vault: OpenVault) -> None:
    opened(vault)
    at = replace(vault.house.desk.streams, clock=SetClock("2026-01-03T23:00:00+00:00"))
    assert code_of(lambda: at.close(OWNER, "visits", "daily", until(4))) == "stream-out-of-order"
    assert at.close(OWNER, "visits", "daily", until(3))["closed"] == 3


def test_what_was_released_never_changes(vault: OpenVault, tmp_path: Path) -> None:
    opened(vault, epsilon=0.5)
    close(vault, 2)
    first = vault["visits"].stream("daily")
    add_second(vault, tmp_path)
    close(vault, 4)
    later = vault["visits"].stream("daily")
    assert (later.rows[:2], later.interval[:2]) == (first.rows, first.interval)
    assert later.rows == vault["visits"].stream("DAILY").rows


# --- who may ------------------------------------------------------------------------------------


def test_whoever_may_ask_the_data_set_reads_free_and_nobody_else_at_all(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault, epsilon=1)
    close(vault, 3)
    vault.enrol("ria", "researchers")
    before = spent(vault)
    with sfumato.open(tmp_path / "vault", user="ria") as theirs:
        answer = theirs["visits"].stream("daily")
        assert answer.rows == vault["visits"].stream("daily").rows
        assert code_of(lambda: theirs["visits"].stream("weekly")) == "stream-unknown"
        assert code_of(lambda: opened(theirs, "mine")) == "not-allowed"
        assert code_of(lambda: close(theirs, 4)) == "not-allowed"
    with sfumato.open(tmp_path / "vault", user="zed") as other:
        assert code_of(lambda: other["visits"].stream("daily")) == "unknown-data-set"
    assert spent(vault) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM visits",
        "SELECT date_trunc('day', day) AS d, COUNT(*) FROM visits GROUP BY d",
        "SELECT date_trunc('hour', day) AS d, RUNNING_COUNT(*) FROM visits GROUP BY d",
        "SELECT place, date_trunc('day', day) AS d, RUNNING_COUNT(*) FROM visits GROUP BY place, d",
        "SELECT date_trunc('day', day) AS d, RUNNING_COUNT(*), COUNT(*) FROM visits GROUP BY d",
        "SELECT date_trunc('day', day) AS d, RUNNING_COUNT(*) AS n FROM visits GROUP BY d "
        "HAVING n > 3",
        "SELECT date_trunc('day', day) AS d, RUNNING_COUNT(*) AS n FROM visits GROUP BY d LIMIT 3",
        "SELECT date_trunc('day', day) AS d, RUNNING_COUNT(*) AS n FROM visits GROUP BY d "
        "ORDER BY n",
    ],
)
def test_what_is_no_single_running_count_is_refused_and_not_charged(
    vault: OpenVault, sql: str
) -> None:
    refused = code_of(lambda: vault.open_stream("visits", "s", sql, **TERMS))
    assert refused == "stream-not-possible"
    assert sum(spent(vault).values()) == 0


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"periods": 0}, "stream-not-possible"),
        ({"periods": 10_001}, "stream-not-possible"),
        ({"rows": 0}, "stream-not-possible"),
        ({"rows": 1.5}, "bad-request"),
        ({"start": "9999-01-01"}, "stream-not-possible"),
        ({"start": "soon"}, "type-mismatch"),
        ({"epsilon": 0}, "bad-budget"),
        ({"epsilon": "1e-6"}, "bad-budget"),
    ],
)
def test_terms_that_make_no_stream_are_refused_and_not_charged(
    vault: OpenVault, terms: dict[str, Any], code: str
) -> None:
    assert code_of(lambda: opened(vault, **terms)) == code
    assert sum(spent(vault).values()) == 0


def test_a_name_that_could_be_a_path_is_refused(vault: OpenVault) -> None:
    for name in ("../x", "a.b", "", "a/b", "ä"):
        assert code_of(lambda n=name: opened(vault, n)) == "stream-not-possible"  # type: ignore[misc]


def test_rows_without_persons_have_no_stream(tmp_path: Path) -> None:
    text = CARD.replace('unit = "who"', 'unit = "row"') % "1"
    with open_with(tmp_path, "visits", source(tmp_path, "first", FIRST), text) as made:
        assert code_of(lambda: opened(made)) == "stream-not-possible"


# --- what is kept, and what is lost ---------------------------------------------------------------


def kept(folder: Path) -> Path:
    return folder / "vault" / "streams" / "visits.daily"


def test_what_is_kept_is_for_the_vaults_owner_alone_and_only_the_newest(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault)
    close(vault, 3)
    found = {p.name: p.stat().st_mode & 0o777 for p in kept(tmp_path).rglob("*")}
    assert found == {"lock": 0o600, "3": 0o700, "used.duckdb": 0o600, "taken.json": 0o600}
    assert kept(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_the_ledger_has_noisy_blocks_and_nothing_that_is_kept(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault, epsilon=0.1)
    close(vault, 4)
    entries = [e for e in vault.house.ledger.store.entries() if e.kind == "stream-closed"]
    bodies = [json.loads(entry.body) for entry in entries]
    assert [body["end"] for body in bodies] == [1, 2, 3, 4]
    said = {"stream", "end", "block", "token", "version", "data_set", "says"}
    assert [set(body) for body in bodies] == [said] * 4
    assert (
        json.loads((kept(tmp_path) / "4" / "taken.json").read_text())["block"]
        == (bodies[-1]["block"])
    )
    assert vault.house.ledger.verified()["ok"] is True


@pytest.mark.parametrize("lost", ["all", "used.duckdb", "taken.json", "older"])
def test_without_the_newest_private_state_nothing_more_is_closed(
    vault: OpenVault, tmp_path: Path, lost: str
) -> None:
    opened(vault)
    close(vault, 2)
    old = tmp_path / "old"
    shutil.copytree(kept(tmp_path), old)
    close(vault, 3)
    if lost in ("all", "older"):
        shutil.rmtree(kept(tmp_path))
    else:
        (kept(tmp_path) / "3" / lost).unlink()
    if lost == "older":
        old.rename(kept(tmp_path))
    before = counts(vault)
    assert code_of(lambda: close(vault, 4)) == "stream-lost"
    assert counts(vault) == before


def test_an_older_state_under_the_newest_ones_number_is_noticed(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault)
    close(vault, 2)
    (kept(tmp_path) / "2").rename(tmp_path / "2")
    shutil.copytree(tmp_path / "2", kept(tmp_path) / "2")
    close(vault, 3)
    shutil.rmtree(kept(tmp_path) / "3")
    (tmp_path / "2").rename(kept(tmp_path) / "3")
    assert code_of(lambda: close(vault, 4)) == "stream-lost"
    words = kept(tmp_path) / "4"  # as if it had been taken after another third day
    shutil.copytree(kept(tmp_path) / "3", words)
    said = json.loads((words / "taken.json").read_text())
    (words / "taken.json").write_text(json.dumps({**said, "end": 4}))
    assert code_of(lambda: close(vault, 4)) == "stream-lost"


def test_after_the_ledger_has_lost_entries_no_stream_goes_on(vault: OpenVault) -> None:
    opened(vault, epsilon=1)
    close(vault, 2)
    vault.house.ledger.store.freeze("a test")
    assert code_of(lambda: close(vault, 3)) == "ledger-frozen"
    vault.owner.data_sets.acknowledge("a test")
    assert code_of(lambda: close(vault, 3)) == "stream-lost"
    assert len(counts(vault)) == 2


def test_a_second_entry_of_a_day_is_not_read(vault: OpenVault) -> None:
    opened(vault)
    close(vault, 2)
    before = counts(vault)
    body = {"stream": "visits.daily", "end": 2, "block": 999, "token": "x", "version": "1"}
    vault.house.ledger.note("stream-closed", body)
    assert counts(vault) == before


def test_a_day_that_fails_says_one_constant_word_and_can_be_closed_later(
    vault: OpenVault, tmp_path: Path
) -> None:
    opened(vault)
    close(vault, 1)
    (table,) = (tmp_path / "vault" / "tables").glob("*.duckdb")
    whole = table.read_bytes()
    table.write_bytes(b"canary" * 10_000)
    with pytest.raises(Refused) as refused:
        close(vault, 3)
    assert refused.value.code == "stream-failed"
    assert "canary" not in str(refused.value)
    assert refused.value.__context__ is None
    table.write_bytes(whole)
    close(vault, 3)
    assert counts(vault) == by_hand([(day, FIRST) for day in (1, 2, 3)])


# --- what is shown --------------------------------------------------------------------------------

GOLDEN = """\
       day  so_far
----------  ------
2026-01-01   2 ± 0
2026-01-02   3 ± 0
2026-01-03   4 ± 0
± and ranges hold at 95 %, for the noise alone; at most 2 rows of a person count over the whole \
stream.
central-dp, free: paid when the stream was opened, 200 left."""


def test_it_reads_as_an_answer_does(vault: OpenVault) -> None:
    opened(vault)
    assert len(vault["visits"].stream("daily")) == 0
    close(vault, 3)
    answer = vault["visits"].stream("daily")
    assert repr(answer) == GOLDEN
    assert answer.receipt["stream"] == {
        "data_set": "visits",
        "name": "daily",
        "question": answer.receipt["question"],
        "start": "2026-01-01",
        "periods": 8,
        "rows": 2,
        "epsilon": "800",
        "closed": 3,
    }
    assert vault.house.ledger.has_receipt(answer.receipt) is True
    assert [row[1] for row in answer.tidy().rows] == [2, 3, 4]
    assert '"temporal"' in json.dumps(answer.plot().spec)


def test_the_error_of_each_day_is_that_of_as_many_draws_as_it_has(vault: OpenVault) -> None:
    opened(vault, epsilon=1, periods=60)
    close(vault, 20)
    answer = vault["visits"].stream("daily")
    stds = [row[1] for row in answer.std]
    first = stds[0] or 0
    assert first == pytest.approx((2**0.5) * 4, rel=0.01)  # c levels by epsilon is 4
    assert stds[7] == pytest.approx(first)  # eight days are one block of this tree
    assert stds[6] == pytest.approx(first * 7**0.5)
    low, high = answer.interval[6][1] or (0, 0)
    assert 2.0 < (high - low) / 2 / (stds[6] or 1) < 2.2


def test_the_chain_holds_a_stream_like_any_charge(vault: OpenVault, tmp_path: Path) -> None:
    opened(vault)
    close(vault, 1)
    with apsw.Connection(str(tmp_path / "vault" / "ledger.sqlite")) as connection:
        kinds = [str(k) for (k,) in connection.execute("SELECT kind FROM ledger_entries")]
    assert kinds[-3:] == ["charged", "released", "stream-closed"]
