"""A ring of six sites that are real services, reached over HTTP, some of which are killed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sfumato import Refused
from sfumato.app.federation import FederatedVault
from support.federated_services import Federation, several_services
from support.federated_sites import rows_of

SIX = ("east", "hill", "lake", "north", "south", "west")
COUNT = "SELECT COUNT(*) AS n FROM patients"
SURE: dict[str, Any] = {"epsilon": 20, "delta": 1e-6}  # so that the noise is a few people at most
NEAR = 10  # Skellam noise of variance 4 at most: passed with a chance below 1e-5


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Return six services of four neighbours each."""
    with several_services(tmp_path_factory.mktemp("ring"), SIX, floor=4, neighbours=4) as made:
        yield made


def people(*names: str) -> int:
    return sum(len(rows_of(place)) for place, name in enumerate(SIX) if name in names)


@pytest.mark.parametrize(
    ("stage", "is_in"), [("join", False), ("share", False), ("mask", True), ("agree", True)]
)
def test_a_service_that_is_killed_at_a_stage_leaves_the_sum_right(
    sites: Federation, stage: str, is_in: bool
) -> None:
    """Its secrets are gone with it; its neighbours on the ring have what is needed."""

    def heard(progress: Any) -> None:
        if progress.stage == stage:
            sites.kill_door("lake")

    said = sites.together(heard=heard)["patients"].ask(COUNT, **SURE)
    left = [name for name in SIX if is_in or name != "lake"]
    assert said.receipt["sites"] == left
    assert abs(float(str(said.value)) - people(*left)) <= NEAR
    sites.wait_for("lake")
    assert sites.together()["patients"].ask(COUNT, **SURE).receipt["sites"] == list(SIX)
    assert all(found["ok"] for found in sites.ledgers().values())


def test_a_service_shows_the_neighbours_it_has_agreed_on_and_takes_no_others(
    sites: Federation,
) -> None:
    path = "/v1/data-sets/patients/federations"
    east = sites.services["east"]
    status, said = east.call("GET", path, token=east.owner())
    assert (status, said["federations"][0]["neighbours"]) == (200, 4)
    for other in (2, None):
        fed = sites.together()
        weaker = replace(fed.convener.agreement, neighbours=other)
        with pytest.raises(Refused, match=r"^sum-not-trusted:"):
            FederatedVault(replace(fed.convener, agreement=weaker))["patients"].ask(COUNT, **SURE)
    for wrong in ({"neighbours": 3}, {"neighbours": 0}, {"neighbors": 4}):
        status, said = east.call(
            "POST", path, {**sites.agreement, "name": "other", **wrong}, token=east.owner()
        )
        assert status in (400, 409, 422), said


def test_they_train_and_average_over_http(sites: Federation) -> None:
    model = sites.together().train(
        "patients", features=["age"], target="ill", people=960, rounds=2, clip=1, **SURE
    )
    assert model.card["paid"] == dict.fromkeys(SIX, 20.0)
    said = sites.together().secure_average("patients", COUNT)
    assert (said.value, said.receipt["sites"]) == (people(*SIX), list(SIX))
