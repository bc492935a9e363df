"""Sums over sites without noise: only where every card allows it, counted, and called by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato import Refused
from sfumato.app.federation import new_convener
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.data_sets.amend_pages import changed, standing_of
from sfumato.features.data_sets.card_consistency import check_raise
from sfumato.features.data_sets.card_steps import card_of
from sfumato.features.federated import average_client
from sfumato.release.ledger_guard import Ledger
from sfumato.server.console.forms import Form
from sfumato.vault.card.secure_average_terms import GUARANTEE, HIDES, read_averages
from sfumato.vault.engine_port import EngineStopped
from support.federated_sites import (
    ASK,
    NAMES,
    Between,
    Sites,
    pooled,
    rows_of,
    several,
    site_card,
    write_rows,
)
from support.small_vaults import card

COUNT = "SELECT COUNT(*) AS n FROM patients"
MEANS = "SELECT COUNT(*) AS n, SUM(age) AS s, AVG(age) AS a FROM patients"


def allowing(releases: int = 9, sites: int = 3) -> str:
    return f"secure_average = {{ releases = {releases}, sites = {sites} }}"


def cards_of(more: str, **other: str) -> dict[str, Any]:
    return {name: site_card(name, other.get(name, more)) for name in NAMES}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Four sites whose cards allow such sums."""
    with several(tmp_path_factory.mktemp("sites"), cards=cards_of(allowing(40))) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Sites]:
    """Four sites of which a test uses up what they allow: three sums."""
    with several(tmp_path, cards=cards_of(allowing(3))) as made:
        yield made


def refused(code: str, said: str = "") -> Any:
    return pytest.raises(Refused, match=f"(?s)^{code}:.*{said}")


def notes(vault: Any) -> list[dict[str, Any]]:
    """What a site's ledger says of tables and sums that left without noise."""
    found = vault.call("entries", {"after": 0, "limit": 200})["entries"]
    return [json.loads(one["body"]) for one in found if one["kind"] == "not-dp-release"]


def test_an_average_is_exact_and_called_by_its_name_on_every_face(sites: Sites) -> None:
    said = sites.together().secure_average("patients", MEANS)
    ages = np.array([r[1] for r in pooled()])
    ((count, total, mean),) = said.rows
    assert (count, total) == (len(ages), ages.sum())
    assert mean == pytest.approx(ages.mean(), abs=1e-9)
    assert said.guarantee == said.receipt["guarantee"] == GUARANTEE
    assert said.receipt["sites"] == list(NAMES)
    for one in said.receipt["at_each_site"].values():
        assert (one["guarantee"], one["epsilon"], one["charged"]) == (GUARANTEE, None, {})
        assert one["not_dp"].startswith("DP releases only;")
    assert all(one is None for row in (*said.std, *said.interval) for one in row)
    assert GUARANTEE in repr(said)
    assert HIDES in repr(said)
    assert "epsilon" not in repr(said)
    assert "95" not in repr(said)


def test_it_charges_no_epsilon_and_stands_in_every_sites_ledger(sites: Sites) -> None:
    together, before = sites.together(), {n: notes(v) for n, v in sites.vaults.items()}
    spent = sites.spent()
    together.secure_average("patients", COUNT)
    assert sites.spent() == spent
    for name, vault in sites.vaults.items():
        (new,) = notes(vault)[len(before[name]) :]
        assert (new["guarantee"], new["site"]) == (GUARANTEE, name)
        assert new["people"] == f"patients-of-{name}"
        assert "without noise" in new["says"]
        assert vault.call("verify-ledger", {})["ok"]
    later = together["patients"].ask(COUNT, **ASK)
    assert "non-DP releases exist" in str(later.receipt["not_dp"])  # on receipts of DP beside it


@pytest.mark.parametrize("name", ["east", "west"])
def test_one_card_that_is_silent_is_enough_to_refuse(tmp_path: Path, name: str) -> None:
    with several(tmp_path, cards=cards_of(allowing(), **{name: ""})) as made:
        with refused("average-not-allowed", "no secure_average"):
            made.together().secure_average("patients", COUNT)
        assert all(notes(vault) == [] for vault in made.vaults.values())
        shown = {n: v.call("card", {"data_set": "patients"}) for n, v in made.vaults.items()}
        assert "secure_average" not in shown[name]
        assert sum("secure_average" in one for one in shown.values()) == 3


def test_a_card_may_want_more_sites_than_there_are(tmp_path: Path) -> None:
    with (
        several(tmp_path, cards=cards_of(allowing(), south=allowing(9, 5))) as made,
        refused("average-not-allowed", "needs 5 sites"),
    ):
        made.together().secure_average("patients", COUNT)


def test_what_a_card_allows_is_used_up_and_then_nothing_is_read(fresh: Sites) -> None:
    for _ in range(3):
        said = fresh.together().secure_average("patients", COUNT)
    assert {one["releases_left"] for one in said.receipt["at_each_site"].values()} == {0}
    with refused("average-not-allowed", "limit is reached"):
        fresh.together().secure_average("patients", COUNT)
    assert [len(notes(vault)) for vault in fresh.vaults.values()] == [3] * 4
    lying = {n: Between(v, change=says_it_fits) for n, v in fresh.vaults.items()}
    with refused("average-not-allowed", "data card allows 3"):  # whoever convenes may not care
        fresh.together(lying).secure_average("patients", COUNT)
    fresh.again("west")  # nor does a restart, or a new version of the card
    with refused("average-not-allowed"):
        fresh.together().secure_average("patients", COUNT)


def says_it_fits(verb: str, reply: dict[str, Any]) -> dict[str, Any]:
    return {**reply, "fits": True} if verb == "price-sum" else reply


def test_two_rounds_at_one_time_are_not_both_the_last_one(fresh: Sites) -> None:
    """Both are joined while one is left; whoever is noted second reads nothing."""
    together = fresh.together()
    for _ in range(2):
        together.secure_average("patients", COUNT)
    inner: list[str] = []

    def between(verb: str, reply: dict[str, Any]) -> dict[str, Any]:
        if verb == "join-sum" and not inner:
            inner.append("begun")
            fresh.together().secure_average("patients", MEANS)
        return reply

    with refused("average-not-allowed", "data card allows 3"):
        ways = {"west": Between(fresh.vaults["west"], change=between)}
        fresh.together(ways).secure_average("patients", COUNT)


def test_a_note_that_comes_second_is_counted_and_not_read(
    fresh: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look before the note sees one left; another round's note comes between."""
    for _ in range(2):
        fresh.together().secure_average("patients", COUNT)
    note, measure = Ledger.note, DuckDBEngine.measure
    raced: list[object] = []
    reads: list[object] = []

    def racing(self: Ledger, kind: str, body: Any) -> Any:
        if kind == "not-dp-release" and not raced:
            raced.append(body)
            note(self, kind, {**body, "round": "another"})
        return note(self, kind, body)

    def reading(self: Any, table: str, asked: Any) -> Any:
        reads.append(table)
        return measure(self, table, asked)

    monkeypatch.setattr(Ledger, "note", racing)
    monkeypatch.setattr(DuckDBEngine, "measure", reading)
    with refused("average-not-allowed", "data card allows 3"):
        fresh.together().secure_average("patients", COUNT)
    assert len(reads) < len(NAMES)  # the site where it came second has read nothing


def test_a_freeze_that_holds_before_the_note_lets_nothing_be_read(
    fresh: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner freezes between the look before the note and the note: they were told it holds."""
    west, note, measure = fresh.vaults["west"], Ledger.note, DuckDBEngine.measure
    listing = west.house.catalogue.find("patients")
    assert listing is not None
    froze: list[object] = []
    reads: list[str] = []

    def late(self: Ledger, kind: str, body: Any) -> Any:
        if self is west.house.desk.sites.door.ledger and kind == "not-dp-release":
            froze.append(west.call("freeze", {"data_set": "patients"}))
        return note(self, kind, body)

    def reading(self: Any, table: str, asked: Any) -> Any:
        reads.append(table)
        return measure(self, table, asked)

    monkeypatch.setattr(Ledger, "note", late)
    monkeypatch.setattr(DuckDBEngine, "measure", reading)
    with refused("data-set-frozen"):
        fresh.together().secure_average("patients", COUNT)
    assert len(froze) == 1
    assert listing.table not in reads


@pytest.mark.parametrize("stage", ["share", "mask", "agree", "reveal"])
def test_a_site_that_is_lost_leaves_no_sum_of_the_rest(sites: Sites, stage: str) -> None:
    """With noise the floor of three would do; without, the difference would be one site."""
    stages = iter(("share", "mask", "agree", "reveal"))

    def cut(verb: str, reply: dict[str, Any]) -> dict[str, Any]:
        if verb == "go-on-with-sum" and next(stages) == stage:
            raise Refused("service-down", "The line is cut.", "")
        return reply

    together = sites.together({"west": Between(sites.vaults["west"], change=cut)})
    with refused("service-down", "3 sites are left, but the floor is 4"):
        together.secure_average("patients", COUNT)


def test_whoever_convenes_cannot_lower_the_floor(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It plays by the agreement's floor of three; every site wants all of them."""
    monkeypatch.setattr(average_client, "replace", lambda made, **_: made)
    with refused("sum-not-trusted"):
        sites.together().secure_average("patients", COUNT)


def test_earlier_sums_were_over_the_same_sites_or_there_is_none(fresh: Sites) -> None:
    """All but west agree as well: the difference of both sums would be west's own."""
    fresh.together().secure_average("patients", COUNT)
    three = {name: key for name, key in fresh.agreement["sites"].items() if name != "west"}
    new_convener(fresh.folder / "other.key")
    others = Sites(fresh.folder, {n: fresh.vaults[n] for n in three}, {
        **fresh.agreement, "name": "others", "sites": three,
    })  # fmt: skip
    for vault in others.vaults.values():
        vault.call("join-federation", {"data_set": "patients", **others.agreement})
    with refused("average-not-allowed", "over other sites"):
        others.together().secure_average("patients", COUNT)


PICKED = {  # each of these gives one site's rows, or one person's
    "where": "SELECT SUM(salary) AS s FROM patients WHERE salary = 20097",
    "group": "SELECT zip, SUM(age) AS s FROM patients GROUP BY zip",
    "case": "SELECT SUM(CASE WHEN salary = 20097 THEN age ELSE 0 END) AS s FROM patients",
    "product": "SELECT SUM(age * age) AS s FROM patients",
    "each person": "SELECT SUM(n) AS s FROM (SELECT patient_id, COUNT(*) AS n FROM patients "
                   "WHERE salary = 20097 GROUP BY patient_id) AS p",
}  # fmt: skip


@pytest.mark.parametrize("sql", PICKED.values(), ids=PICKED)
def test_a_sum_without_noise_is_over_whole_tables(sites: Sites, sql: str) -> None:
    """A filter that one site's rows meet alone would make the sum over all sites that site's."""
    before = [len(notes(vault)) for vault in sites.vaults.values()]
    with refused("average-not-allowed", "must cover all rows"):
        sites.together().secure_average("patients", sql)
    assert [len(notes(vault)) for vault in sites.vaults.values()] == before


@pytest.mark.parametrize("more", [{"max_rows": 1}, {"max_groups": 1}])
def test_an_asker_does_not_say_how_much_of_a_person_counts(
    sites: Sites, more: dict[str, int]
) -> None:
    body = {"data_set": "patients", "federation": "clinics", "sql": COUNT, "guarantee": GUARANTEE}
    with refused("average-not-allowed", "own limits"):
        sites.vaults["east"].call("price-sum", {**body, **more})


def test_earlier_sums_were_over_the_same_rows_or_there_is_none(fresh: Sites) -> None:
    """West brings its rows again with one more: the difference of both sums would be that one's."""
    fresh.together().secure_average("patients", COUNT)
    west = fresh.vaults["west"]
    new = ("s3p9999", 71, "10001", 123_456, "true")
    source = write_rows(fresh.folder / "more.csv", [*rows_of(3), new])
    shape = site_card("west", allowing(3))
    west.add("patients", source, {**shape, "version": "2"})
    with refused("average-not-allowed", "over other rows"):
        fresh.together().secure_average("patients", COUNT)


def test_an_amended_card_is_over_the_same_rows_unless_more_of_a_person_count(
    fresh: Sites,
) -> None:
    fresh.together().secure_average("patients", COUNT)
    amended(fresh.vaults["south"], "2", average_releases="7", average_sites="4")
    assert fresh.together().secure_average("patients", COUNT).value == len(pooled())
    shape = {"version": "3", "max_rows": 2}
    fresh.vaults["south"].call("amend", {"data_set": "patients", "card": shape})
    with refused("average-not-allowed|sum-not-trusted"):
        fresh.together().secure_average("patients", COUNT)


def test_a_sum_with_noise_is_not_read_as_one_without(sites: Sites) -> None:
    vault = sites.vaults["east"]
    body: dict[str, Any] = {"data_set": "patients", "federation": "clinics", "sql": COUNT}
    for wrong in ({"guarantee": "central-dp"}, {"guarantee": GUARANTEE, "epsilon": 1}):
        with refused("bad-request"):
            vault.call("price-sum", {**body, **wrong})
    with refused("bad-budget"):  # no guarantee and no epsilon
        vault.call("price-sum", body)
    priced = vault.call("price-sum", {**body, "guarantee": GUARANTEE})
    assert (priced["guarantee"], priced["epsilon"], priced["spent"]) == (GUARANTEE, None, False)


def test_what_leaves_a_site_is_masked(sites: Sites) -> None:
    """Two rounds of the same question send other bytes; neither holds the site's count."""
    seen = []
    for _ in range(2):
        way = Between(sites.vaults["west"])
        sites.together({"west": way}).secure_average("patients", COUNT)
        ((_, reply),) = way.of("go-on-with-sum", "mask")
        seen.append(reply["message"])
    assert seen[0] != seen[1]


@pytest.mark.parametrize("fault", [EngineStopped(), RuntimeError("row 7: 31,10001")])
def test_whatever_goes_wrong_with_rows_is_one_code_and_counts(
    fresh: Sites, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def failing(*_: object) -> Any:
        raise fault

    with monkeypatch.context() as patched:
        patched.setattr(DuckDBEngine, "measure", failing)
        with refused("question-failed") as raised:
            fresh.together().secure_average("patients", COUNT)
    assert "10001" not in str(raised.value)
    assert raised.value.__context__ is None
    assert [len(notes(vault)) for vault in fresh.vaults.values()] == [1] * 4
    if isinstance(fault, EngineStopped):  # it tells a bit, so that shape waits
        with refused("question-frozen"):
            fresh.together().secure_average("patients", COUNT)
    else:
        fresh.together().secure_average("patients", COUNT)


def test_after_a_ledger_was_acknowledged_nobody_knows_how_many_have_left(fresh: Sites) -> None:
    fresh.together().secure_average("patients", COUNT)
    (fresh.folder / "west" / "anchors" / "anchor").unlink()
    fresh.vaults["west"].owner.data_sets.acknowledge("A disk was lost.")
    with refused("average-not-allowed", "may have lost entries"):
        fresh.together().secure_average("patients", COUNT)


def test_private_keys_and_choices_are_no_sums_here_either(sites: Sites) -> None:
    with refused("not-in-language"):
        sites.together().secure_average("patients", "SELECT MIN(age) AS m FROM patients")


# --- the card ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [{}, {"releases": 0}, {"releases": 5, "sites": 2}, {"releases": 2000}, {"releases": True},
     {"releases": 2, "floor": 3}, 5],
)  # fmt: skip
def test_a_card_whose_line_cannot_be_meant_is_refused(wrong: object) -> None:
    with refused("bad-card"):
        read_averages(wrong)


def test_only_two_people_let_more_leave_where_the_card_says_so() -> None:
    from sfumato.vault.card.data_card import read_card

    def made(more: str) -> Any:
        return read_card("patients", card(
            f'unit = "id"\nbudget = {{ epsilon = 1 }}\n{more}\n[caps]\nraise = "two people"\n'
            '[columns.age]\ntype = "integer"\nlower = 0\nupper = 9\n'
        ))  # fmt: skip

    few, many, none = made(allowing(2)), made(allowing(3)), made("")
    over_more = made(allowing(2, 9))
    for before, after in ((few, many), (none, few), (over_more, few)):
        check_raise(before, after)
        with refused("not-allowed", "without noise"):
            check_raise(after, before)


def amended(vault: Any, version: str, **typed: str) -> dict[str, Any]:
    """Sign what an owner types into the console's form of a card; return the card after."""
    standing = standing_of(vault.call("card", {"data_set": "patients"}))
    form = Form({n: [v] for n, v in {**standing, "version": version, **typed}.items()})
    vault.call("amend", {"data_set": "patients", "card": changed(standing, form)})
    return dict(vault.call("card", {"data_set": "patients"}))


def test_an_owner_allows_and_ends_it_in_the_form_and_every_version_is_signed(
    tmp_path: Path,
) -> None:
    with several(tmp_path, cards=cards_of(allowing(), south="")) as made:
        south = made.vaults["south"]
        with refused("average-not-allowed"):
            made.together().secure_average("patients", COUNT)
        said = amended(south, "2", average_releases="7", average_sites="4")
        assert said["secure_average"] == {"releases": 7, "sites": 4}
        assert "without noise" in repr(south["patients"].card)
        assert made.together().secure_average("patients", COUNT).value == len(pooled())
        assert "secure_average" not in amended(south, "3", average_releases="", average_sites="")
        with refused("average-not-allowed"):
            made.together().secure_average("patients", COUNT)


def test_the_guided_form_says_nothing_of_it_unless_it_was_typed() -> None:
    fields = {"epsilon": "1", "c0-name": "age", "c0-type": "text"}
    assert "secure_average" not in card_of(fields)
    made = card_of({**fields, "average_releases": "2", "average_sites": "3"})
    assert made["secure_average"] == {"releases": 2, "sites": 3}
