"""Sums over several sites: right, charged at each site, read by nobody; all in one process."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sfumato import Refused
from sfumato.app.federation import new_convener
from sfumato.client.ask_terms import Json
from sfumato.dp.ports import RandomSource
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.features.federated.sum_plan import SumPlan
from sfumato.release.guarantees.secure_aggregation import shares_of
from sfumato.vault.card.secure_average_terms import GUARANTEE as AVERAGE
from sfumato.vault.engine_port import EngineStopped
from sfumato.vault.users import Caller
from support.federated_sites import (
    ASK,
    NAMES,
    Between,
    Sites,
    pooled,
    refused,
    rows_of,
    several,
    site_card,
)

COUNT = "SELECT COUNT(*) AS n FROM patients"
OWNER = Caller("owner", frozenset({"read", "ask", "own"}))
BODY = {"data_set": "patients", "federation": "clinics", "sql": COUNT}
WIDE = "SELECT FLOOR(salary / 25) AS s, COUNT(*) AS n FROM patients GROUP BY FLOOR(salary / 25)"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Four sites that stand while nothing of theirs is changed for good."""
    with several(tmp_path_factory.mktemp("sites")) as made:
        yield made


# --- the sum is right -------------------------------------------------------------------------


@pytest.mark.usefixtures("without_noise")
def test_without_noise_the_answer_is_that_of_all_rows_in_one_place(sites: Sites) -> None:
    rows = pooled()
    ages, salaries = np.array([r[1] for r in rows]), np.array([r[3] for r in rows])
    said = sites.together()["patients"].ask(
        "SELECT COUNT(*) AS n, SUM(age) AS s, AVG(age) AS a, SUM(salary) AS w, VAR_SAMP(age) AS v,"
        " COUNT_IF(age >= 50) AS old FROM patients",
        epsilon=9, delta=1e-5,
    )  # fmt: skip
    count, total, mean, salary, variance, old = said.rows[0]
    assert (count, total, old) == (len(rows), ages.sum(), (ages >= 50).sum())
    assert mean == pytest.approx(ages.mean(), abs=1e-9)
    assert variance == pytest.approx(ages.var(ddof=1), rel=0.01)
    noises: Any = said.receipt["noise"]
    grid = max(noise["grid"] for noise in noises)
    assert abs(float(str(salary)) - salaries.sum()) <= len(NAMES) * grid / 2


@pytest.mark.usefixtures("without_noise")
def test_a_histogram_has_every_key_in_its_order(sites: Sites) -> None:
    said = sites.together()["patients"].ask(
        "SELECT zip, FLOOR(age / 20) * 20 AS a, COUNT(*) AS n FROM patients"
        " GROUP BY zip, FLOOR(age / 20) * 20",
        **ASK,
    )
    found = {(z, a): n for z, a, n in said.rows}
    for (zip_, age), count in found.items():
        assert count == sum(r[2] == zip_ and r[1] // 20 * 20 == age for r in pooled())
    assert sum(found.values()) == len(pooled())  # type: ignore[arg-type]  # numbers


@pytest.mark.usefixtures("without_noise")
def test_a_line_through_all_rows_is_the_pooled_one(sites: Sites) -> None:
    """From one sum of moments, whatever the sites have of them each."""
    fit = sites.together()["patients"].linear("salary", ["age"], epsilon=2, delta=1e-5, ridge=0)
    ages = np.array([float(r[1]) for r in pooled()])
    salaries = np.array([float(r[3]) for r in pooled()])
    slope, intercept = np.polyfit(ages, salaries, 1)
    found = _coefficients(fit)
    assert found["age"] == pytest.approx(slope, rel=0.02, abs=1)
    assert found["(intercept)"] == pytest.approx(intercept, rel=0.01)


@pytest.mark.usefixtures("without_noise")
def test_odds_learnt_in_rounds_over_sites_are_those_of_all_rows(sites: Sites) -> None:
    """Four rounds, each paid at each site; Newton's method over the pooled rows beside it."""
    before = sites.spent()
    fit = sites.together()["patients"].logistic("ill", ["age"], epsilon=8, delta=1e-5)
    assert len(fit.answers) == 4
    assert sites.spent() == {name: pytest.approx(e + 8, abs=1e-6) for name, e in before.items()}
    x = np.array([[1.0, r[1]] for r in pooled()])
    y, b = np.array([r[4] == "true" for r in pooled()]), np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ b))
        b = b + np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]), x.T @ (y - p))
    found = _coefficients(fit)
    assert [found["(intercept)"], found["age"]] == pytest.approx(b.tolist(), rel=0.05)


def _coefficients(fit: Any) -> dict[str, float]:
    made = {"(intercept)": fit.intercept.value}
    return made | {name: one.value for name, one in fit.coefficients.items()}


SHARES = (0, 0.1, 0.25, 0.5, 0.9, 1)


@pytest.mark.usefixtures("without_noise")
def test_without_noise_a_quantile_lies_in_the_pooled_ones_bin(sites: Sites) -> None:
    ages = sorted(r[1] for r in pooled())
    said = sites.together().quantiles("patients", "age", SHARES, width=5, **ASK)
    for share, found in zip(SHARES, said.of, strict=True):
        place = max(0, math.ceil(share * len(ages)) - 1)  # the least age with that share up to it
        assert found.start == ages[place] // 5 * 5
        assert found.end == found.start + 5
        assert found.low <= found.start < found.end <= found.high
    assert said.counts.receipt["guarantee"] == "central-dp"


@pytest.mark.parametrize(
    ("shares", "width"),
    [([1.5], 5), ([float("nan")], 5), (["half"], 5), (0.5, 5), ([], 5), ([True], 5),
     ([0.5], -1), ([0.5], 0), ([0.5], float("nan")), ([0.5], "5"), ([0.5], True)],
)  # fmt: skip
def test_a_quantile_beyond_all_rows_is_refused_before_it_is_paid(
    sites: Sites, shares: Any, width: Any
) -> None:
    """By bins of a width below zero a quantile's bin ended before it began, and was paid."""
    before = sites.spent()
    with refused("not-in-language"):
        sites.together().quantiles("patients", "age", shares, width=width, **ASK)
    assert sites.spent() == before


def test_the_noise_of_the_sum_is_what_all_sites_shares_make(sites: Sites) -> None:
    said = sites.together()["patients"].ask(WIDE, **ASK)
    rows = pooled()
    exact = {key: 0 for key, _ in said.rows}
    for row in rows:
        exact[row[3] // 25] += 1
    noise = np.array([float(str(n)) - exact[key] for key, n in said.rows])
    assert noise.size > 8000
    told: Any = said.receipt["noise"]
    expected = float(told[0]["variance"])
    assert 0.9 < noise.var() / expected < 1.1
    assert abs(noise.mean()) < 6 * (expected / noise.size) ** 0.5
    price = sites.together()["patients"].price(WIDE, **ASK)
    floor = float(price["noise"][0]["variance"])
    assert expected == pytest.approx(floor * 4 / (3 - 1))  # a floor of three, one may tell


def test_each_single_site_may_be_missing_and_the_sum_is_of_the_others(
    sites: Sites, without_noise: None
) -> None:
    for gone in NAMES:
        said = sites.together({gone: Gone()})["patients"].ask(COUNT, **ASK)
        expected = sum(len(rows_of(p)) for p, name in enumerate(NAMES) if name != gone)
        assert said.value == expected
        assert said.receipt["left_out"] == {gone: "service-down"}


class Gone:
    """A site that nobody reaches."""

    def call(self, _verb: str, _body: object) -> dict[str, Any]:
        raise Refused("service-down", "It is gone.", "Try later.")


# --- each site is charged, by its own door ----------------------------------------------------


def test_each_site_pays_what_it_says_and_its_ledger_holds(sites: Sites) -> None:
    before = sites.spent()
    said = sites.together()["patients"].ask(COUNT, epsilon=0.25, delta=1e-6)
    assert sites.spent() == {n: pytest.approx(e + 0.25) for n, e in before.items()}
    assert said.receipt["charged"] == dict.fromkeys(NAMES, 0.25)
    for name, vault in sites.vaults.items():
        assert vault.call("verify-ledger", {})["ok"]
        receipt = said.receipt["at_each_site"][name]  # type: ignore[index]  # JSON
        assert vault.owner.ledger.has_receipt(receipt)


def test_the_ledger_says_what_was_asked_of_whom_and_against_whom(sites: Sites) -> None:
    sites.together()["patients"].ask(COUNT, **ASK)
    east = sites.vaults["east"]
    questions: Any = east.history().shape["questions"]
    newest = questions[0]
    assert newest["says"] == "the number of rows, added up over 4 sites (clinics)"
    assert newest["code"] is None
    sheet = east.call("sheet", {"entry": str(newest["entry"])})
    assert sheet["outcome"] == "released"
    assert sheet["mechanism"] == "skellam"
    entries: Any = sheet["entries"]
    body = json.loads(entries[0]["body"])["body"]
    assert body["against"] == (
        "whoever sees the sum, and the convener together with any one site; "
        "somebody at several of the sites pays at each of them"
    )
    assert body["secure-sum"]["federation"] == sites.terms.as_json()


def test_a_price_spends_nothing(sites: Sites) -> None:
    before = sites.spent()
    price = sites.together()["patients"].price(COUNT, **ASK)
    assert price["error"]["n"] > 0
    assert "nothing spent yet" in repr(price)
    means = sites.together()["patients"].price("SELECT AVG(age) AS a FROM patients", **ASK)
    assert "is not known in advance" in repr(means)
    assert sites.spent() == before


def test_the_charge_is_durable_before_a_row_is_read(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moment of reading, each site has paid already; what then fails stays paid."""
    before, seen = sites.spent(), []

    def reads(engine: DuckDBEngine, _table: str, _measure: object) -> None:
        seen.append({n: v.call("budget", {"data_set": "patients"}) for n, v in owners(engine)})
        raise RuntimeError("a cell of the rows")

    def owners(engine: DuckDBEngine) -> list[tuple[str, Any]]:
        return [(n, v) for n, v in sites.vaults.items() if v.house.engine is engine]

    monkeypatch.setattr(DuckDBEngine, "measure", reads)
    with refused("question-failed") as raised:
        sites.together()["patients"].ask(COUNT, **ASK)
    assert "a cell" not in str(raised.value)
    assert len(seen) == 4
    for said in seen:
        for name, budget in said.items():
            assert budget["spent"]["epsilon"] == pytest.approx(before[name] + 1)
    assert sites.spent() == {n: pytest.approx(e + 1) for n, e in before.items()}


def test_a_question_that_was_stopped_waits_for_the_owner(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked over sites or at one of them: it is the same shape."""
    sql = "SELECT SUM(age) AS s FROM patients"

    def stops(*_: object) -> None:
        raise EngineStopped

    with monkeypatch.context() as planted:
        planted.setattr(DuckDBEngine, "measure", stops)
        with refused("question-failed"):
            sites.together()["patients"].ask(sql, **ASK)
    with refused("question-frozen"):
        sites.together()["patients"].ask(sql, **ASK)
    with refused("question-frozen"):
        sites.vaults["east"]["patients"].ask(sql, epsilon=1)


def test_a_site_that_cannot_pay_is_left_out_and_reads_nothing(tmp_path: Path) -> None:
    poor = {"west": site_card("west", "", **{"epsilon = 900.0": "epsilon = 0.5"})}
    with several(tmp_path, cards=poor) as sites:
        said = sites.together()["patients"].ask(COUNT, **ASK)
        assert said.receipt["left_out"] == {"west": "budget-exceeded"}
        assert sites.spent() == {"east": 1.0, "north": 1.0, "south": 1.0, "west": 0.0}
        poorer = sites.together({"east": Gone()})
        with refused("sum-too-few") as raised:
            poorer["patients"].ask(COUNT, **ASK)
        assert "budget-exceeded" in str(raised.value)
        assert sites.spent()["north"] == 1.0  # who was left had nothing to pay for


# --- nobody reads one site's numbers ----------------------------------------------------------


def words_of(reply: dict[str, Any], bits: int) -> Any:
    """The masked words of a site's message, as the convener has them."""
    _, masked = decode_fields(base64.b64decode(reply["message"]), "masked", 2)
    return np.frombuffer(masked, dtype="<u4" if bits <= 32 else "<u8")


def uniform(words: Any, bits: int) -> float:
    """The chance of words as uneven as these, if they were uniform modulo 2**bits."""
    high = np.bincount((words >> np.array(bits - 6, words.dtype)).astype(int), minlength=64)
    low = np.bincount((words & np.array(63, words.dtype)).astype(int), minlength=64)
    return float(min(stats.chisquare(part).pvalue for part in (high, low)))


def played(sites: Sites) -> tuple[dict[str, Between], int]:
    """A round over an instrumented line, and its width."""
    ways = {name: Between(vault) for name, vault in sites.vaults.items()}
    fed = sites.together(ways)
    fed["patients"].ask(WIDE, **ASK)
    ((_, price),) = ways["east"].of("price-sum")
    return ways, price["bits"]


def test_what_the_convener_sees_of_a_site_is_uniform(sites: Sites) -> None:
    """False alarm: eight tests at 1e-6."""
    ways, bits = played(sites)
    for way in ways.values():
        ((_, reply),) = way.of("go-on-with-sum", "mask")
        assert uniform(words_of(reply, bits), bits) > 1e-6


def test_and_the_test_fails_where_masks_are_switched_off(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.dp.secure_aggregation import collector, participant

    for module in (participant, collector):
        monkeypatch.setattr(module, "add_mask", lambda _words, _key: None)
        monkeypatch.setattr(module, "take_mask", lambda _words, _key: None)
    ways, bits = played(sites)
    for way in ways.values():
        ((_, reply),) = way.of("go-on-with-sum", "mask")
        assert uniform(words_of(reply, bits), bits) < 1e-100


def test_no_noise_is_used_twice(sites: Sites) -> None:
    """Of two rounds about the same, the difference has the noise of both."""
    one, two = (sites.together()["patients"].ask(WIDE, **ASK) for _ in range(2))
    pairs = zip(one.rows, two.rows, strict=True)
    apart = np.array([float(str(a)) - float(str(b)) for (_, a), (_, b) in pairs])
    told: Any = one.receipt["noise"]
    assert 0.9 < apart.var() / (2 * float(told[0]["variance"])) < 1.1


# --- what a site refuses ----------------------------------------------------------------------


def caught(sites: Sites, verb: str, stage: str | None = None) -> tuple[Between, dict[str, Any]]:
    """What `east` was asked at that stage of a round that is over, and the line to it."""
    way = Between(sites.vaults["east"])
    sites.together({"east": way})["patients"].ask(COUNT, **ASK)
    ((body, _),) = way.of(verb, stage)
    return way, body


def test_a_round_cannot_be_played_again_not_even_after_a_restart(tmp_path: Path) -> None:
    with several(tmp_path) as sites:
        _, joined = caught(sites, "join-sum")
        spent = sites.spent()
        with refused("sum-not-trusted"):
            sites.vaults["east"].call("join-sum", joined)
        east = sites.again("east")
        with refused("sum-not-trusted"):
            east.call("join-sum", joined)
        assert sites.spent() == spent


def test_a_late_message_finds_no_round(sites: Sites) -> None:
    way, late = caught(sites, "go-on-with-sum", "mask")
    spent = sites.spent()
    with refused("sum-message-refused"):
        way.vault.call("go-on-with-sum", late)
    with refused("sum-message-refused"):
        way.vault.call("go-on-with-sum", {**late, "round": "0" * 64})
    assert sites.spent() == spent


def test_a_reply_that_was_lost_is_given_again_and_paid_once(sites: Sites) -> None:
    """Every request goes out twice, as where a line breaks after the site has answered."""
    before = sites.spent()

    class Twice:
        def __init__(self, vault: Any) -> None:
            self.vault = vault

        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            first = self.vault.call(verb, body)
            if verb in ("join-sum", "go-on-with-sum"):
                assert self.vault.call(verb, body) == first
            return dict(first)

    said = sites.together({"east": Twice(sites.vaults["east"])})["patients"].ask(COUNT, **ASK)
    assert said.receipt["left_out"] == {}
    assert sites.spent() == {name: pytest.approx(e + 1) for name, e in before.items()}


def test_a_site_never_says_two_things_at_one_stage(sites: Sites) -> None:
    """A second list of survivors, from another round, gets no answer from anybody."""

    class Liar(Between):
        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            if body.get("stage") == "agree":
                self.vault.call(verb, body)
                other = base64.b64encode(b"another list").decode()
                with refused("sum-message-refused"):
                    self.vault.call(verb, {**body, "message": other})
            return super().call(verb, body)

    liars = {name: Liar(vault) for name, vault in sites.vaults.items()}
    assert sites.together(liars)["patients"].ask(COUNT, **ASK).receipt["left_out"] == {}


def test_a_convener_whom_the_sites_do_not_know_gets_nothing(sites: Sites, tmp_path: Path) -> None:
    stranger = new_convener(tmp_path / "stranger.key")
    other = {**sites.agreement, "convener": stranger}
    spent = sites.spent()
    import sfumato

    fed = sfumato.federation(other, key=tmp_path / "stranger.key", sites=sites.vaults)
    with refused("sum-not-trusted"):
        fed["patients"].ask(COUNT, **ASK)
    with refused("bad-federation"):
        sfumato.federation(sites.agreement, key=tmp_path / "stranger.key", sites=sites.vaults)
    assert sites.spent() == spent


def test_a_weaker_round_than_was_agreed_gets_nothing(sites: Sites) -> None:
    """A lower floor, fewer sites: signed by the true convener, and refused by every site."""
    import sfumato

    spent = sites.spent()
    fewer = {name: sites.agreement["sites"][name] for name in NAMES[:3]}
    ways = {name: sites.vaults[name] for name in fewer}
    fed = sfumato.federation(
        {**sites.agreement, "sites": fewer}, key=sites.folder / "convener.key", sites=ways
    )
    with refused("sum-not-trusted"):
        fed["patients"].ask(COUNT, **ASK)
    assert sites.spent() == spent


def test_another_question_than_was_signed_gets_nothing(sites: Sites) -> None:
    """The question that a site is told beside an invitation is not the one that it is for."""

    class Other(Between):
        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            if verb == "join-sum":
                body = {**body, "epsilon": 0.5}
            return super().call(verb, body)

    said = sites.together({"east": Other(sites.vaults["east"])})["patients"].ask(COUNT, **ASK)
    assert said.receipt["left_out"] == {"east": "sum-not-trusted"}


def test_sites_whose_cards_differ_are_not_added_up(tmp_path: Path) -> None:
    other = {"west": site_card("west", "", **{"upper = 110": "upper = 90"})}
    with several(tmp_path, cards=other) as sites:
        with refused("sum-not-trusted") as raised:
            sites.together()["patients"].ask("SELECT AVG(age) FROM patients", **ASK)
        assert "'east'" in str(raised.value)
        assert sites.together()["patients"].ask(COUNT, **ASK).receipt["left_out"] == {}


def test_a_frozen_data_set_and_one_that_left_take_no_part(tmp_path: Path) -> None:
    with several(tmp_path) as sites:
        sites.vaults["west"].call("freeze", {"data_set": "patients"})
        said = sites.together()["patients"].ask(COUNT, **ASK)
        assert said.receipt["left_out"] == {"west": "data-set-frozen"}
        left: dict[str, object] = {"data_set": "patients", "federation": "clinics"}
        sites.vaults["east"].call("leave-federation", left)
        with refused("sum-too-few"):
            sites.together()["patients"].ask(COUNT, **ASK)
        assert sites.vaults["east"].call("federations", {"data_set": "patients"}) == {
            "federations": []
        }
        sites.vaults["east"].call("join-federation", {"data_set": "patients", **sites.agreement})
        assert sites.together()["patients"].ask(COUNT, **ASK).receipt["sites"] == [
            "east", "north", "south",
        ]  # fmt: skip


def test_a_site_that_leaves_between_two_stages_sends_nothing(tmp_path: Path) -> None:
    with several(tmp_path) as sites:

        class Leaves(Between):
            def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
                if body.get("stage") == "mask":
                    left: dict[str, object] = {"data_set": "patients", "federation": "clinics"}
                    self.vault.call("leave-federation", left)
                return super().call(verb, body)

        said = sites.together({"west": Leaves(sites.vaults["west"])})["patients"].ask(COUNT, **ASK)
        assert said.receipt["left_out"] == {"west": "federation-unknown"}
        assert sites.spent()["west"] == 0


def test_a_data_set_that_is_frozen_between_two_stages_sends_nothing(tmp_path: Path) -> None:
    with several(tmp_path) as sites:

        class Freezes(Between):
            def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
                if body.get("stage") == "mask":
                    self.vault.call("freeze", {"data_set": "patients"})
                return super().call(verb, body)

        west = Freezes(sites.vaults["west"])
        said = sites.together({"west": west})["patients"].ask(COUNT, **ASK)
        assert said.receipt["left_out"] == {"west": "data-set-frozen"}
        assert sites.spent()["west"] == 0


def test_a_freeze_while_a_site_draws_its_share_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with several(tmp_path) as sites:
        west, drawn = sites.vaults["west"], shares_of
        froze: list[object] = []

        def late(sum_: SumPlan, dice: RandomSource) -> Any:  # Any: shares
            if dice is west.house.desk.sites.door.dice:
                froze.append(west.call("freeze", {"data_set": "patients"}))
            return drawn(sum_, dice)

        monkeypatch.setattr("sfumato.features.federated.sum_release.shares_of", late)
        said = sites.together()["patients"].ask(COUNT, **ASK)
        assert len(froze) == 1
        assert said.receipt["left_out"] == {"west": "data-set-frozen"}
        assert sites.spent()["west"] == 0


def test_a_right_that_is_taken_away_while_a_site_draws_its_share_pays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with several(tmp_path) as sites:
        west, drawn = sites.vaults["west"], shares_of
        desk, zoe = west.house.desk, Caller("zoe", frozenset({"read", "ask"}))
        desk.access.invite(OWNER, "zoe", ["researcher"])
        desk.policy.grant(OWNER, "patients", "zoe", "researchers")
        taken: list[object] = []

        class AsZoe(Between):
            def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
                return dict(desk.done(verb, zoe, body))

        def late(sum_: SumPlan, dice: RandomSource) -> Any:  # Any: shares
            if dice is desk.sites.door.dice:
                taken.append(desk.policy.revoke_grant(OWNER, "patients", "zoe"))
            return drawn(sum_, dice)

        monkeypatch.setattr("sfumato.features.federated.sum_release.shares_of", late)
        said = sites.together({"west": AsZoe(west)})["patients"].ask(COUNT, **ASK)
        assert taken == [{"revoked": "zoe"}]
        assert said.receipt["left_out"] == {"west": "unknown-data-set"}
        assert desk.sites.door.ledger.store.account("user:patients/zoe") is None


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("stage", ["join-sum", "share", "mask", "agree", "reveal"])
def test_a_site_that_sends_nonsense_spoils_no_sum(sites: Sites, stage: str) -> None:
    """From the agreement on its numbers are in the sum; when it sends them it has paid."""

    class Spoils(Between):
        def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
            reply = super().call(verb, body)
            return {**reply, "message": "AAAA"} if body.get("stage", verb) == stage else reply

    before = sites.spent()["west"]
    said = sites.together({"west": Spoils(sites.vaults["west"])})["patients"].ask(COUNT, **ASK)
    charged: Any = said.receipt["charged"]
    assert charged.get("west", 0) == sites.spent()["west"] - before
    is_in = stage in ("agree", "reveal")
    assert said.receipt["left_out"] == ({} if is_in else {"west": "sum-message-refused"})
    assert said.value == len(pooled()) - (0 if is_in else len(rows_of(3)))


def test_an_answer_is_made_of_a_sum_of_the_right_size(sites: Sites) -> None:
    body = {"data_set": "patients", "federation": "clinics", "sql": COUNT, **ASK}
    shown = sites.vaults["east"].call("show-sum", {**body, "total": [7], "sites": 3})
    assert shown["rows"] == [[7]]
    for total, count in (([7, 8], 3), ([], 3), ([1 << 63], 3), ([7], 2), ([7], 5)):
        with refused("bad-request"):
            sites.vaults["east"].call("show-sum", {**body, "total": total, "sites": count})


def test_a_site_of_another_agreement_is_not_joined(sites: Sites) -> None:
    others = {"a": "1" * 64, "b": "2" * 64, "c": "3" * 64}
    with refused("bad-federation"):
        sites.vaults["east"].call(
            "join-federation", {"data_set": "patients", **sites.agreement, "sites": others}
        )
    with refused("bad-federation"):  # of that name another stands
        sites.vaults["east"].call(
            "join-federation", {"data_set": "patients", **sites.agreement, "floor": 4}
        )


REPLIES: dict[str, tuple[str, Any]] = {
    "no price": ("price-sum", lambda _: {}),
    "a width in words": ("price-sum", lambda said: {**said, "bits": "wide"}),
    "a width beyond all": ("price-sum", lambda said: {**said, "bits": 1000}),
    "a size beyond all": ("price-sum", lambda said: {**said, "size": 1 << 60}),
    "a list": ("go-on-with-sum", lambda _: []),
    "no receipt": ("go-on-with-sum", lambda said: {**said, "receipt": {}}),
    "a receipt of no noise": ("go-on-with-sum", lambda said: _told(said, guarantee=AVERAGE)),
    "a receipt of far too much": ("go-on-with-sum", lambda said: _told(said, epsilon=10**400)),
}


def _told(said: Json, **changed: object) -> Json:
    """Return a reply whose receipt, if it has one, says otherwise what was paid."""
    paid = {name: one for name, one in said.get("receipt", {}).items() if name != "epsilon"}
    return {**said, "receipt": {**paid, **changed}} if paid else said


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("kind", REPLIES)
def test_a_reply_that_is_none_leaves_its_site_out_or_without_receipt(
    sites: Sites, kind: str
) -> None:
    verb, made = REPLIES[kind]
    way = Between(sites.vaults["north"], change=lambda v, said: made(said) if v == verb else said)
    said = sites.together({"north": way})["patients"].ask(COUNT, **ASK)
    without: Any = said.receipt.get("without_receipt", [])
    left_out: Any = said.receipt["left_out"]
    assert (without, sorted(left_out)) == (
        (["north"], []) if "receipt" in kind else ([], ["north"])
    )
    assert said.rows[0][0] == sum(len(rows_of(NAMES.index(n))) for n in NAMES if n not in left_out)


def test_one_site_that_shows_another_table_is_not_believed(sites: Sites) -> None:
    """The first by name, which used to be asked alone."""
    way = Between(sites.vaults["east"])
    way.change = lambda verb, reply: {**reply, "rows": [[77]]} if verb == "show-sum" else reply
    count = "SELECT COUNT(*) AS n FROM patients"
    said = sites.together({"east": way})["patients"].ask(count, **ASK)
    assert float(str(said.value)) > 300


def test_one_site_decides_no_word_of_an_answers_receipt(sites: Sites) -> None:
    """The first by name, whose table is right, and whose receipt was quoted."""
    way, better = Between(sites.vaults["east"]), {"guarantee": "pure-dp", "epsilon": 1e-9}
    better |= {"secure_average": None}  # which no other says, not even so
    way.change = lambda verb, reply: (
        {**reply, "receipt": {**reply["receipt"], **better, "note": "!"}}
        if verb == "show-sum"
        else reply
    )
    said = sites.together({"east": way})["patients"].ask(COUNT, **ASK).receipt
    assert (said["guarantee"], said["epsilon"]) == ("central-dp", 1)
    assert not {"note", "secure_average"} & said.keys()


def test_one_site_decides_no_word_of_a_price(sites: Sites) -> None:
    """Which has least left is its own to say; what all know as well as it does is not."""
    way = Between(sites.vaults["east"])
    better = {"epsilon": 1e-9, "error": {}, "says": "!", "left": {"next_epsilon": -1.0}}
    way.change = lambda verb, reply: {**reply, **better} if verb == "price-sum" else reply
    honest, said = (
        sites.together(ways)["patients"].price(COUNT, **ASK).shape for ways in ({}, {"east": way})
    )
    assert said["left"] == {"next_epsilon": -1.0}
    for word in ("epsilon", "error", "says", "noise"):
        assert said[word] == honest[word]


def test_what_a_price_says_of_accounts_is_of_the_site_that_has_least_left(tmp_path: Path) -> None:
    """Most have spent nothing; what is left, and the odds after it, are of one that has."""
    with several(tmp_path) as sites:
        sites.vaults["west"]["patients"].ask(COUNT, epsilon=7)
        own = {n: v.call("price-sum", {**BODY, **ASK}) for n, v in sites.vaults.items()}
        said = sites.together()["patients"].price(COUNT, **ASK).shape
    assert own["west"]["odds"] != own["east"]["odds"] == own["north"]["odds"]
    assert (said["left"], said["odds"]) == (own["west"]["left"], own["west"]["odds"])


def test_a_price_that_is_deeper_than_any_can_be_read_leaves_its_site_out(sites: Sites) -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"more": deep}
    way = Between(sites.vaults["east"])
    way.change = lambda verb, reply: {**reply, "note": deep} if verb == "price-sum" else reply
    said = sites.together({"east": way})["patients"].price(COUNT, **ASK).shape
    assert said["left_out"] == {"east": "sum-message-refused"}


@pytest.mark.parametrize(
    "budget", [{}, {"spent": 7}, {"spent": {"epsilon": "much"}}, {"yours": None}], ids=str
)
def test_a_site_that_says_nonsense_of_its_accounts_hides_no_others(
    sites: Sites, budget: dict[str, Any]
) -> None:
    way = Between(sites.vaults["north"])
    way.change = lambda verb, reply: (
        ({**reply, **budget} if budget else {}) if verb == "budget" else reply
    )
    together = sites.together({"north": way})
    assert together.spent("patients").keys() == {"east", "south", "west"}
    accounts: Any = together.convener.budget("patients")["yours"]
    assert {"east: people", "west: people"} <= accounts.keys()


def test_a_convener_who_says_that_a_site_has_gone_and_has_not_gets_no_share(sites: Sites) -> None:
    """At real vaults: half are asked for west's seed, the others for the key of its masks."""
    convener = sites.together().convener
    asked = {"data_set": "patients", "federation": "clinics", "sql": COUNT, **ASK}
    priced, _ = convener.priced(asked)
    about = str(next(iter(priced.values()))["about"])
    bits = max(int(one["bits"]) for one in priced.values())
    terms = sites.terms.terms(convener.dice.draw(32), 1, bits, about)
    collector = Collector(terms, convener.key)
    box: Any = dict.fromkeys(NAMES, collector.invitation())

    def say(name: str, stage: str, message: bytes) -> bytes:
        sent = {"message": base64.b64encode(message).decode()}
        if stage == "join":
            reply = sites.vaults[name].call("join-sum", {**asked, **sent})
        else:
            where = {"data_set": "patients", "round": terms.nonce.hex(), "stage": stage}
            reply = sites.vaults[name].call("go-on-with-sum", {**where, **sent})
        return base64.b64decode(str(reply["message"]))

    said: dict[str, bytes] = {}
    for stage in ("join", "share", "mask"):
        for name, message in box.items():
            said[name] = say(name, stage, message)
            collector.take(said[name])
        box = collector.close()
    claims = [decode_fields(said[name], "masked", 2)[0] for name in NAMES]
    there, gone = encode_fields("survivors", *claims), encode_fields("survivors", *claims[:3])
    lists = {"east": there, "north": gone, "south": gone, "west": there}
    words = {name: say(name, "agree", told) for name, told in lists.items()}
    for name, told in lists.items():
        with refused("sum-message-refused"):  # one for each list is below the floor, and
            say(name, "agree", gone if told == there else there)  # nobody says a second
        with refused("sum-message-refused"):  # no words on two lists are words on one
            say(name, "reveal", encode_fields("agreements", *words.values()))
