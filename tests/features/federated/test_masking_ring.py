"""Sums and lessons over real sites of which each shares its masks with some of the others only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sfumato import Refused
from sfumato.app.federation import FederatedVault, new_agreement
from sfumato.dp.secure_aggregation.message_encoding import decode_fields
from sfumato.dp.secure_aggregation.round_terms import Terms, fewest_neighbours
from sfumato.features.federated.agreement import Agreement, read_agreement
from sfumato.features.federated.convener import _bytes
from support.federated_sites import ASK, Between, Sites, refused, rows_of, several, site_card

SIX = ("east", "hill", "lake", "north", "south", "west")
COUNT = "SELECT COUNT(*) AS n FROM patients"
WIDE = "SELECT FLOOR(salary / 25) AS s, COUNT(*) AS n FROM patients GROUP BY FLOOR(salary / 25)"
STAGES = ("join-sum", "share", "mask", "agree", "reveal")
CARDS = {name: site_card(name, "secure_average = { releases = 20 }") for name in SIX}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Six sites of four neighbours each, which bear whatever is lost down to the floor."""
    folder = tmp_path_factory.mktemp("ring")
    with several(folder, names=SIX, cards=CARDS, floor=4, neighbours=4) as made:
        yield made


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """The same of two neighbours each: where one is lost, another site could part the others."""
    folder = tmp_path_factory.mktemp("thin")
    with several(folder, names=SIX, floor=4, neighbours=2) as made:
        yield made


def people(*names: str) -> list[Any]:
    """The patients of these sites."""
    return [row for place, name in enumerate(SIX) if name in names for row in rows_of(place)]


class GoneFrom(Between):
    """The way to a site that nobody reaches from a stage on."""

    def __init__(self, vault: Any, stage: str) -> None:
        super().__init__(vault)
        self.last, self.is_gone = stage, False

    def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        self.is_gone |= body.get("stage", verb) == self.last
        if self.is_gone:
            raise Refused("service-down", "It is gone.", "Try later.")
        return super().call(verb, body)


# --- the sums are right -----------------------------------------------------------------------


@pytest.mark.usefixtures("without_noise")
def test_the_answers_are_those_of_all_rows_in_one_place(sites: Sites) -> None:
    said = sites.together()["patients"].ask(
        "SELECT COUNT(*) AS n, SUM(age) AS s, AVG(age) AS a FROM patients", **ASK
    )
    ages = [row[1] for row in people(*SIX)]
    assert list(said.rows[0][:2]) == [len(ages), sum(ages)]
    assert said.rows[0][2] == pytest.approx(sum(ages) / len(ages), abs=1e-9)
    by_zip = sites.together()["patients"].ask(
        "SELECT zip, COUNT(*) AS n FROM patients GROUP BY zip", **ASK
    )
    assert {str(zip_): n for zip_, n in by_zip.rows} == {
        zip_: sum(row[2] == zip_ for row in people(*SIX)) for zip_ in ("10001", "10002")
    }


@pytest.mark.usefixtures("without_noise")
def test_a_quantile_lies_in_the_pooled_ones_bin(sites: Sites) -> None:
    ages = sorted(row[1] for row in people(*SIX))
    said = sites.together().quantiles("patients", "age", [0.25, 0.5, 0.9], width=5, **ASK)
    for share, found in zip((0.25, 0.5, 0.9), said.of, strict=True):
        assert found.start == ages[max(0, math.ceil(share * len(ages)) - 1)] // 5 * 5


def test_a_sum_without_noise_is_exact_and_all_sites_or_none(sites: Sites) -> None:
    said = sites.together().secure_average("patients", COUNT)
    assert (said.value, said.receipt["sites"]) == (len(people(*SIX)), list(SIX))
    lost = {"lake": GoneFrom(sites.vaults["lake"], "mask")}
    with refused("service-down"):
        sites.together(lost).secure_average("patients", COUNT)


def test_a_lesson_is_learnt_and_goes_on_without_a_site(sites: Sites) -> None:
    heard: list[Any] = []
    lost = {"south": GoneFrom(sites.vaults["south"], "agree")}
    model = sites.together(lost).train(
        "patients", features=["age"], target="ill", rounds=12, people=960, clip=1, rate=2.0,
        epsilon=60, delta=1e-6, heard=heard.append,
    )  # fmt: skip
    others = tuple(name for name in SIX if name != "south")
    assert [step.sites for step in heard] == [SIX, *[others] * 11]  # its first numbers were sent
    rows = [{"age": row[1], "ill": row[4] == "true"} for row in people(*SIX)]
    ill = sum(row["ill"] for row in rows) / len(rows)
    assert model.accuracy(rows) > max(ill, 1 - ill) + 0.1
    assert model.card["paid"] == dict.fromkeys(SIX, 60.0)


@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("gone", ["east", "north"])
def test_a_site_that_drops_out_at_any_stage_leaves_the_sum_right(
    sites: Sites, stage: str, gone: str
) -> None:
    lost = {gone: GoneFrom(sites.vaults[gone], stage)}
    said = sites.together(lost)["patients"].ask(COUNT, **ASK)
    is_in = stage in ("agree", "reveal")  # its numbers were sent
    left = [name for name in SIX if is_in or name != gone]
    assert said.receipt["sites"] == left
    assert said.value == len(people(*left))


@pytest.mark.usefixtures("without_noise")
def test_losses_down_to_the_floor_are_borne_wherever_they_are(sites: Sites) -> None:
    """The ring is another in each round; of four neighbours two may be gone."""
    for one, other in (("east", "hill"), ("east", "north"), ("lake", "west"), ("north", "south")):
        lost = {
            one: GoneFrom(sites.vaults[one], "mask"),
            other: GoneFrom(sites.vaults[other], "share"),
        }
        said = sites.together(lost)["patients"].ask(COUNT, **ASK)
        assert said.value == len(people(*(name for name in SIX if name not in lost)))
    three = {name: GoneFrom(sites.vaults[name], "mask") for name in SIX[:3]}
    with refused("service-down"):
        sites.together(three)["patients"].ask(COUNT, **ASK)


# --- a ring that is cut -----------------------------------------------------------------------


@pytest.mark.usefixtures("without_noise")
def test_a_thin_ring_adds_up_as_long_as_nobody_is_lost(thin: Sites) -> None:
    assert thin.together()["patients"].ask(COUNT, **ASK).value == len(people(*SIX))


@pytest.mark.parametrize("stage", ["join-sum", "share", "mask"])
def test_a_ring_that_is_cut_gives_no_sum_and_is_paid_by_nobody_if_it_is_seen_before(
    thin: Sites, stage: str
) -> None:
    """One is gone, and one of the others could be the second cut: above the floor, and refused."""
    before = thin.spent()
    lost = {"lake": GoneFrom(thin.vaults["lake"], stage)}
    with pytest.raises(Refused) as raised:
        thin.together(lost)["patients"].ask(COUNT, **ASK)
    said = str(raised.value)
    assert "too many neighbours are missing" in said
    assert "east, hill, north, south and 1 more: sum-too-few" in said
    has_paid = 0 if stage != "mask" else 1
    others = {name: spent + has_paid for name, spent in before.items() if name != "lake"}
    assert thin.spent() == pytest.approx({**others, "lake": before["lake"]})


def test_the_ring_of_the_one_is_as_large_as_is_sure_and_the_others_is_not(
    sites: Sites, thin: Sites
) -> None:
    assert sites.terms.is_ring
    assert thin.terms.is_ring
    assert (
        thin.agreement["neighbours"] < fewest_neighbours(6, 4, 1) <= sites.agreement["neighbours"]
    )


# --- what the convener may not choose ---------------------------------------------------------


def convened(sites: Sites, **changed: Any) -> FederatedVault:
    """The sites, convened with the true key on other terms; questions are about the agreed ones."""
    fed = sites.together()
    other = replace(fed.convener.agreement, **changed)
    return FederatedVault(replace(fed.convener, agreement=other))


@pytest.mark.parametrize("neighbours", [None, 2])
def test_a_round_of_other_neighbours_than_agreed_is_refused_by_every_site(
    sites: Sites, neighbours: int | None
) -> None:
    """Fewer, and more too: what all sites have put down is what a round is."""
    before = sites.spent()
    with refused("sum-not-trusted") as raised:
        convened(sites, neighbours=neighbours)["patients"].ask(COUNT, **ASK)
    assert "0 sites are left" in str(raised.value)
    assert sites.spent() == before


@pytest.mark.parametrize(
    "changed", [{"threshold": 3}, {"neighbours": 2, "threshold": 2}, {"floor": 5}], ids=str
)
def test_a_round_of_another_word_in_its_terms_is_refused_too(
    sites: Sites, changed: dict[str, Any]
) -> None:
    """By a convener that has the terms of its own made, and signs them."""
    fed = sites.together()
    agreed = fed.convener.agreement

    def other(*words: Any) -> Terms:
        return replace(Agreement.terms(agreed, *words), **changed)

    object.__setattr__(agreed, "terms", other)
    with refused("sum-not-trusted"):
        fed["patients"].ask(COUNT, **ASK)


def test_sites_that_have_agreed_on_different_neighbours_add_nothing_up(tmp_path: Path) -> None:
    """One owner has joined another agreement of the same name, as older services would."""
    with several(tmp_path, names=SIX, floor=4, neighbours=4) as made:
        lake = made.vaults["lake"]
        lake.call("leave-federation", {"data_set": "patients", "federation": "clinics"})
        everybody = {word: one for word, one in made.agreement.items() if word != "neighbours"}
        lake.call("join-federation", {"data_set": "patients", **everybody})
        with refused("sum-not-trusted"):
            made.together()["patients"].ask(COUNT, **ASK)
        assert set(made.spent().values()) == {0.0}


# --- what is seen of one site -----------------------------------------------------------------


def uniform(words: Any, bits: int) -> float:
    """The chance of words as uneven as these, if they were uniform modulo 2**bits."""
    high = np.bincount((words >> np.array(bits - 6, words.dtype)).astype(int), minlength=64)
    low = np.bincount((words & np.array(63, words.dtype)).astype(int), minlength=64)
    return float(min(stats.chisquare(part).pvalue for part in (high, low)))


def seen_of_each(sites: Sites) -> tuple[list[Any], int]:
    """The masked words of each site, as the convener has them, and their width."""
    ways = {name: Between(vault) for name, vault in sites.vaults.items()}
    sites.together(ways)["patients"].ask(WIDE, **ASK)
    ((_, price),) = ways["east"].of("price-sum")
    sent = [way.of("go-on-with-sum", "mask")[0][1]["message"] for way in ways.values()]
    kind = "<u4" if price["bits"] <= 32 else "<u8"
    return [np.frombuffer(decode_fields(_bytes(one), "masked", 2)[1], kind) for one in sent], price[
        "bits"
    ]


def test_what_the_convener_sees_of_a_site_is_uniform_whatever_is_taken_away(sites: Sites) -> None:
    """And of the sum of all but one: the one's masks are in it. False alarm: 24 tests at 1e-7."""
    words, bits = seen_of_each(sites)
    for place, one in enumerate(words):
        assert uniform(one, bits) > 1e-7
        others = np.sum([w for at, w in enumerate(words) if at != place], axis=0, dtype=one.dtype)
        assert uniform(others & np.array((1 << bits) - 1, one.dtype), bits) > 1e-7


def test_and_is_not_where_masks_are_switched_off(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.dp.secure_aggregation import collector, participant

    for module in (participant, collector):
        monkeypatch.setattr(module, "add_mask", lambda _words, _key: None)
        monkeypatch.setattr(module, "take_mask", lambda _words, _key: None)
    words, bits = seen_of_each(sites)
    assert all(uniform(one, bits) < 1e-100 for one in words)


def test_a_site_wears_the_masks_of_its_neighbours_and_of_nobody_else(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sfumato.dp.secure_aggregation import participant

    worn: list[tuple[int, int]] = []
    true = participant.pair_key

    def counted(own: Any, other: bytes, terms: Terms, one: int, two: int) -> bytes:
        worn.append((one, two))
        assert two in terms.near[one]
        return true(own, other, terms, one, two)

    monkeypatch.setattr(participant, "pair_key", counted)
    sites.together()["patients"].ask(COUNT, **ASK)
    assert sorted(one for one, _ in worn) == [place for place in range(6) for _ in range(4)]


def test_the_ledger_and_the_price_are_of_the_agreement_with_its_neighbours(sites: Sites) -> None:
    assert sites.agreement["neighbours"] == 4
    listed: Any = sites.vaults["east"].call("federations", {"data_set": "patients"})
    assert listed["federations"][0]["neighbours"] == 4
    assert listed["federations"][0]["digest"] == sites.terms.digest
    other = replace(sites.terms, neighbours=None)
    assert other.digest != sites.terms.digest


# --- agreements -------------------------------------------------------------------------------

OLD: dict[str, Any] = {
    "name": "clinics", "convener": "0" * 64, "floor": 3, "colluders": 1,
    "sites": {"a": "1" * 64, "b": "2" * 64, "c": "3" * 64, "d": "4" * 64},
}  # fmt: skip


def test_an_agreement_without_neighbours_is_what_it_was_before_there_were_any() -> None:
    """Golden, from before: its digest, its spelling, and the digest of a round of it."""
    old = read_agreement(OLD)
    assert old.digest == "271fe3a3ba1a62d73167efadbd4413ab29d2a242d733616236dd0254a989fd4a"
    assert old.as_json() == OLD
    assert old.terms(bytes(32), 5, 32, "x").digest.hex() == (
        "fd3c0196b24338712ec106706db9928cd84ada5ee0e8ce48b25efa94e0460455"
    )


def keys(count: int) -> dict[str, str]:
    return {f"s{i:03}": f"{i + 1:064x}" for i in range(count)}


@pytest.mark.parametrize(
    "changed",
    [
        {"neighbours": 3}, {"neighbours": 0}, {"neighbours": -2}, {"neighbours": 6},
        {"neighbours": True}, {"neighbours": "4"}, {"neighbours": 4.0}, {"neighbors": 4},
        {"colluders": 2, "neighbours": 2},
    ],
    ids=str,
)  # fmt: skip
def test_neighbours_that_make_no_ring_or_hide_nobody_are_no_agreement(
    changed: dict[str, Any],
) -> None:
    six = {**OLD, "sites": keys(6), "floor": 5, **changed}
    with pytest.raises(Refused, match=r"bad-federation|sum-not-trusted"):
        read_agreement(six)


@pytest.mark.parametrize(
    ("count", "neighbours", "is_one"),
    [(200, None, True), (201, None, False), (201, 200, False), (201, 4, True), (1000, 4, True),
     (1001, 4, False)],
)  # fmt: skip
def test_more_sites_than_200_have_neighbours(
    count: int, neighbours: int | None, is_one: bool
) -> None:
    words = {**OLD, "sites": keys(count), "floor": count, "neighbours": neighbours}
    if is_one:
        assert len(read_agreement(words).members) == count
        return
    with refused("bad-federation"):
        read_agreement(words)


def test_an_owner_joins_a_ring_of_a_thousand_and_hears_what_a_sum_costs(sites: Sites) -> None:
    """The other sites are nowhere; what is priced is this one's part."""
    east = sites.vaults["east"]
    others = {**keys(999), "east": sites.agreement["sites"]["east"]}
    words = {"floor": 900, "colluders": 50}
    made = new_agreement("many", convener="0" * 64, sites=others, **words)
    assert made["neighbours"] == 152
    east.call("join-federation", {"data_set": "patients", **made})
    price = east.call(
        "price-sum", {"data_set": "patients", "federation": "many", "sql": COUNT, **ASK}
    )
    one = sites.vaults["east"].call(
        "price-sum", {"data_set": "patients", "federation": "clinics", "sql": COUNT, **ASK}
    )
    assert price["epsilon"] == one["epsilon"] == 1
    assert price["about"] != one["about"]


def chosen(count: int, **words: Any) -> dict[str, Any]:
    made = new_agreement("clinics", convener="0" * 64, sites=keys(count), **words)
    return {word: made.get(word) for word in ("floor", "colluders", "neighbours")}


def test_what_is_left_out_is_chosen_by_how_many_sites_there_are() -> None:
    assert chosen(4) == {"floor": 3, "colluders": 1, "neighbours": None}
    assert chosen(200) == {"floor": 134, "colluders": 10, "neighbours": None}
    assert chosen(201) == {"floor": 134, "colluders": 10, "neighbours": 78}
    assert chosen(500, floor=450) == {"floor": 450, "colluders": 25, "neighbours": 76}
    assert chosen(6, floor=5, neighbours=4) == {"floor": 5, "colluders": 1, "neighbours": 4}
