"""Jobs, approvals and freezes, kept in a file and in a real PostgreSQL, seen by two nodes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from sfumato.dp.accounting.privacy_filter import Cap
from sfumato.dp.refusal import Bug
from sfumato.features.access.store import SqlAccess
from sfumato.features.airlock.model import Request
from sfumato.features.airlock.store import SqlAirlock
from sfumato.features.jobs.model import Job
from sfumato.features.jobs.store import SqlJobs
from sfumato.features.pipelines.approval_rule import Range, Rule, Spending
from sfumato.features.pipelines.rule_store import SqlPipelineRules
from sfumato.features.policy.approval_store import SqlApprovals
from sfumato.features.policy.approvals import Approval
from sfumato.features.policy.confirmation_store import SqlConfirmations
from sfumato.features.policy.confirmations import Confirmation
from sfumato.storage import postgres_ledger, sqlite_ledger
from sfumato.storage.catalogue import SqlCatalogue
from sfumato.storage.records_database import Records
from sfumato.vault.card.data_card import Card, read_card
from sfumato.vault.catalogue_listing import Listing
from sfumato.vault.users import User
from support import ledger_stores, postgres_server

JOB = Job("a1", "ada", "t1", "ask", "clinic", "op", '{"epsilon": 0.1}', "2026-11-21T10:00:00.000")
Node = Callable[[], Records]
SOON, LATER, LAST = "2026-11-21T10:00:01", "2026-11-21T10:00:06", "2026-11-21T10:00:09"


@pytest.fixture(params=["sqlite", "postgres"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    """Return how another node comes to the same records."""
    url = ""
    if request.param == "postgres":
        server: postgres_server.Server = request.getfixturevalue("server")
        url = server.fresh_url()
    opened: list[Records] = []

    def another() -> Records:
        file = tmp_path / "records.sqlite"
        opened.append(
            postgres_ledger.open_records(url) if url else sqlite_ledger.open_records(file)
        )
        return opened[-1]

    yield another
    for records in opened:
        records.close()


def test_a_job_is_worked_on_by_one_node_at_a_time(node: Node) -> None:
    first, second = SqlJobs(node()), SqlJobs(node())
    assert first.add(JOB) == JOB
    assert second.ready(SOON) == (JOB,)
    assert first.claim("a1", "one", SOON, LATER)
    assert not second.claim("a1", "two", SOON, LATER)
    assert not second.cancel("a1")
    assert second.ready(SOON) == ()
    first.renew("one", LAST)
    assert second.ready(LATER) == ()
    assert second.claim("a1", "two", "2026-11-21T10:00:10", "2026-11-21T10:00:16")
    assert not first.finish("a1", "one", "failed", "{}")
    assert second.finish("a1", "two", "done", "")
    started = "2026-11-21T10:00:10"  # by the second node
    assert first.find("a1") == replace(JOB, state="done", tries=2, started=started)


def test_the_jobs_of_many_keep_nobodys_out_of_those_that_are_looked_at(node: Node) -> None:
    store = SqlJobs(node())
    for n in range(600):
        user = f"user{n % 30}"
        store.add(replace(JOB, id=f"j{n:03}", user=user, op=str(n), created=f"2026-11-20T{n:03}"))
    store.add(JOB)
    found = [job.user for job in store.ready(SOON)]
    assert len(found) == 500
    assert found.index("ada") == 30  # after the first of each who came before


def test_one_operation_is_one_job(node: Node) -> None:
    store = SqlJobs(node())
    store.add(JOB)
    assert store.add(replace(JOB, id="b2")).id == "a1"
    assert store.add(replace(JOB, id="c3", user="bob")).id == "c3"


def test_a_job_that_waits_is_cancelled_and_may_wait_again(node: Node) -> None:
    store = SqlJobs(node())
    store.add(JOB)
    assert store.cancel("a1")
    assert store.ready(SOON) == ()
    assert store.requeue("a1")
    assert not store.requeue("a1")
    assert store.ready(SOON) == (JOB,)


def test_of_jobs_that_are_over_the_last_hundred_are_kept(node: Node) -> None:
    store = SqlJobs(node())
    for n in range(103):
        store.add(replace(JOB, id=f"j{n}", op=f"op{n}", created=f"2026-11-21T10:{n:04}"))
        store.cancel(f"j{n}")
    store.add(replace(JOB, id="last", op="last", created="2026-11-21T11"))
    assert len(store.of("ada")) == 100
    assert store.find("j2") is None
    assert store.find("j102") is not None


def test_a_job_that_is_asked_again_is_given_however_old_it_is(node: Node) -> None:
    store = SqlJobs(node())
    old = store.add(replace(JOB, id="old", op="old", created="2026-11-21T09"))
    for n in range(101):
        store.add(replace(JOB, id=f"j{n}", op=f"op{n}", created=f"2026-11-21T10:{n:04}"))
    store.cancel("old")  # it is over now, and a hundred are newer
    assert store.add(replace(old, id="again")) == replace(old, state="cancelled")


def test_an_approval_is_decided_once(node: Node) -> None:
    first, second = SqlApprovals(node()), SqlApprovals(node())
    waits = Approval(
        "w1", "clinic", "people:city", Cap(3, 2, 1, 0), Fraction(1, 3), Fraction(1, 10**6),
        "a study", "ada", SOON,
    )  # fmt: skip
    first.add(waits)
    assert second.all() == (waits,)
    assert second.decide("w1", "approved", "bob", LATER)
    assert not first.decide("w1", "declined", "eve", LATER)
    assert first.find("w1") == replace(waits, state="approved", decided_by="bob", decided_at=LATER)


def test_a_confirmation_is_decided_once_and_the_newest_counts(node: Node) -> None:
    first, second = SqlConfirmations(node()), SqlConfirmations(node())
    old = Confirmation("c1", "j1", "clinic", "city", "bob", "ada", SOON)
    first.add(old)
    assert second.decide("c1", "declined", "bob", LATER)
    assert not first.decide("c1", "approved", "bob", LATER)
    new = replace(old, id="c2", asked_at=LAST)
    second.add(new)
    assert first.of_job("j1") == new
    assert first.of_job("j2") is None
    assert first.find("c1") == replace(old, state="declined", decided_by="bob", decided_at=LATER)
    assert [one.id for one in first.all()] == ["c2", "c1"]


def test_of_two_changes_to_one_request_one_is_made(node: Node) -> None:
    first, second = SqlAirlock(node()), SqlAirlock(node())
    made = Request(
        "r1", "town", "people", "1", "ada", "owner", ("rita",), 2, "{}", "why", SOON, LAST
    )
    first.add(made)
    assert second.find("r1") == made
    assert first.change(replace(made, state="running", revision=1))
    assert not second.change(replace(made, state="declined", revision=1))
    assert second.of("people") == (replace(made, state="running", revision=1),)
    assert (second.find("r2"), second.of("others")) == (None, ())


def test_runs_at_once_take_no_more_of_a_rule_than_there_is(node: Node) -> None:
    half = Fraction(1, 2)
    rule = Rule(
        "r1", "town", ("ria",), (), ("a",), (Range("n", Fraction(0), half),), half, half * 5
    )
    stores = [SqlPipelineRules(node()) for _ in range(4)]
    stores[0].add(rule)
    taken: list[bool | None] = []

    def take(store: SqlPipelineRules, name: str) -> None:
        for number in range(4):
            taken.append(store.reserve(Spending("r1", f"{name}{number}", half), rule.most_total))

    threads = [
        threading.Thread(target=take, args=(s, n)) for s, n in zip(stores, "abcd", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (taken.count(True), taken.count(None)) == (5, 11)
    assert stores[1].spent("r1") == rule.most_total
    assert stores[2].of("town") == (rule,) == (Rule.of_json(rule.as_json()),)
    over = replace(rule, ended_at=LAST)
    stores[3].end(over)
    assert stores[0].find("town", "r1") == over
    again = [stores[0].reserve(Spending("r1", f"{n}{k}", half), rule.most_total)
             for n in "abcd" for k in range(4)]  # fmt: skip
    assert (again.count(False), again.count(True)) == (5, 0)  # the same again takes nothing


def test_a_part_is_given_back_by_whom_it_was_held_and_stands_once_it_is_kept(node: Node) -> None:
    one = Fraction(1)
    rule = Rule("r1", "town", ("ria",), (), ("a",), (Range("n", Fraction(0), one),), one, one * 3)
    first, second = SqlPipelineRules(node()), SqlPipelineRules(node())
    first.add(rule)
    ria, sue = Spending("r1", "run", one, "ria"), Spending("r1", "run", one, "sue")
    assert (first.reserve(ria, rule.most_total), second.reserve(sue, rule.most_total)) == (
        True,
        True,
    )
    assert second.reserve(ria, rule.most_total) is False
    first.spend(ria, "run")
    second.cancel(sue)
    assert first.spent("r1") == one
    assert second.reserve(sue, rule.most_total) is False  # the run has its answer
    second.spend(sue, "run")
    second.spend(sue, "failed")
    second.spend(sue, "failed")
    assert first.spent("r1") == 2 * one
    assert first.reserve(Spending("r1", "other", one, "sue"), rule.most_total)
    assert first.reserve(Spending("r1", "third", one, "sue"), rule.most_total) is None


def test_a_freeze_is_seen_by_every_node(node: Node) -> None:
    first, second = SqlCatalogue(node(), _no_card), SqlCatalogue(node(), _no_card)
    assert first.freeze("Clinic", "ada", SOON)
    assert not second.freeze("clinic", "bob", SOON)
    assert second.is_frozen("CLINIC")
    assert second.thaw("clinic")
    assert not first.is_frozen("Clinic")


def test_no_spelling_of_a_name_goes_around_a_freeze(node: Node) -> None:
    """A database's `lower` and Python's `casefold` differ in letters that no name has."""
    catalogue = SqlCatalogue(node(), lambda name, _: _card_of(name))
    catalogue.put(Listing(_card_of("patients"), "t", "ada"), "", "people", "")
    assert catalogue.freeze("patients", "ada", SOON)
    for name in ("patients", "PATIENTS", "Patients"):
        found = catalogue.opened(name, "ada")
        assert found is not None
        assert found.is_frozen
    for name in ("pat\u0130ents", "pat\u0131ents", "patient\u017f", "patients\u0000"):
        assert catalogue.opened(name, "ada") is None
        assert catalogue.find(name) is None


def test_another_nodes_version_is_seen_at_once(node: Node) -> None:
    first, second = (SqlCatalogue(node(), lambda name, _: _card_of(name)) for _ in range(2))
    first.put(Listing(_card_of("patients"), "t1", "ada"), "", "people", "")
    for table in ("t2", "t3"):
        assert second.find("patients") == first.find("PATIENTS")
        first.put(Listing(_card_of("patients"), table, "ada"), "", "people", "")
        found = second.opened("Patients", "ada")
        assert found is not None
        assert found.listing.table == table
        assert second.find("patients") == found.listing


def test_the_cards_of_one_data_set_are_read_without_the_others(node: Node) -> None:
    read: list[str] = []

    def card(name: str, _: str) -> Card:
        read.append(name)
        return _card_of(name)

    catalogue = SqlCatalogue(node(), card)
    for name, text in (("patients", "1"), ("wards", "1"), ("patients", "2")):
        catalogue.put(Listing(_card_of(name), "t", "ada"), text, "people", "")
    assert [one.name for one in catalogue.cards_of("Patients")] == ["patients", "patients"]
    assert set(read) == {"patients"}


def test_an_id_that_a_restored_catalogue_gives_again_shows_nobody_anothers(
    tmp_path: Path,
) -> None:
    """The service runs on while its operator restores a backup: what it knows is not there now."""
    file, backup = tmp_path / "records.sqlite", tmp_path / "backup.sqlite"
    kept = SqlCatalogue(sqlite_ledger.open_records(file), lambda name, _: _card_of(name))
    kept.put(Listing(_card_of("wards"), "t1", "ada"), "", "people", "")
    kept.close()
    backup.write_bytes(file.read_bytes())
    kept.put(Listing(_card_of("patients"), "t2", "ada"), "", "people", "")
    kept.put(Listing(_card_of("wards"), "t3", "ada"), "", "people", "")
    for name in ("patients", "wards"):
        assert kept.find(name) is not None
    for left in tmp_path.glob("records.sqlite-*"):
        left.unlink()
    backup.replace(file)
    other = SqlCatalogue(sqlite_ledger.open_records(file), lambda name, _: _card_of(name))
    other.put(Listing(_card_of("visits"), "t4", "olga"), "", "people", "")
    other.put(Listing(_card_of("wards"), "t5", "ada"), "", "people", "")
    for name, seen in (("visits", "t4"), ("wards", "t5")):
        found = kept.find(name)
        opened = kept.opened(name, "olga")
        assert found is not None
        assert opened is not None
        assert (found.card.name, found.table, opened.listing) == (name, seen, found)
    assert kept.find("patients") is None
    kept.close()
    other.close()


def _card_of(name: str) -> Card:
    x = {"type": "integer", "lower": 0, "upper": 1}
    terms = {"unit": "row", "people": "p", "version": "1", "budget": {"epsilon": 1}}
    return read_card(name, {**terms, "columns": {"x": x}})


def _no_card(_name: str, _text: str) -> Card:
    raise Bug("no card was put")


def test_a_forked_child_leaves_the_parents_connection_alone(node: Node) -> None:
    """Even where a thread of the parent held it: the child's would wait for ever."""
    records = node()
    jobs = SqlJobs(records)

    def look() -> None:
        looks = threading.Thread(target=lambda: os._exit(0 if jobs.ready(SOON) == () else 1))
        looks.start()
        looks.join(20)
        os._exit(2)

    with records.change() as link:
        child = ledger_stores.start_child(look)
        assert ledger_stores.exit_code(child) == 0
        assert link.rows("SELECT 1") == [(1,)]
    assert jobs.add(JOB) == JOB


def test_records_that_were_exchanged_are_looked_at_anew(tmp_path: Path) -> None:
    """A catalogue that was restored beneath the service is what is seen from then on."""
    before, after = tmp_path / "records.sqlite", tmp_path / "restored" / "records.sqlite"
    here, there = sqlite_ledger.open_records(before), sqlite_ledger.open_records(after)
    jobs = SqlJobs(here)
    SqlJobs(there).add(JOB)
    there.close()
    assert jobs.ready(SOON) == ()
    for left in tmp_path.glob("records.sqlite-*"):
        left.unlink()
    after.replace(before)
    assert jobs.ready(SOON) == (JOB,)
    here.close()


def test_what_two_nodes_change_of_one_user_stands_both(node: Node) -> None:
    """Each writes what it decides, and not what it saw of the rest before."""
    first, second = SqlAccess(node()), SqlAccess(node())
    ada = User("ada", ("researcher", "operator"), SOON)
    assert first.add_user(ada)
    assert not second.add_user(replace(ada, roles=("owner",)))
    changed = second.set_password("ada", "a hash")
    assert changed == replace(ada, password="a hash")  # noqa: S106  # of nobody
    assert first.block_user("ada") == replace(changed, is_blocked=True)
    assert second.set_password("ada", "another hash") is None
    back = first.change_user("ada", ("researcher",), is_blocked=False)
    assert back == replace(changed, roles=("researcher",), is_blocked=False)
    assert second.user("ada") == back
    assert second.change_user("bob", ("owner",), is_blocked=False) is None
    assert [user.name for user in first.users()] == ["ada"]
