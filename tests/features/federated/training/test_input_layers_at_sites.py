"""Convolutions and tables learnt by four vaults with their ledgers, secure sums and noise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sfumato
from sfumato import Refused
from sfumato.app.federation import FederatedVault, new_convener
from sfumato.features.federated.training.trained_model import TrainedModel
from sfumato.features.federated.training.training_rounds import Step
from support.drawn_digits import FEATURES, SIDE, TARGET, digits, digits_card, write_digits
from support.federated_sites import NAMES, Sites, pooled, several
from support.small_vaults import make_vault

PICTURES = 300  # at each site
CONV = {"channels": 6, "kernel": 3, "padding": 1, "pool": 2}
WARDS: dict[str, Any] = {
    "features": ["age", "zip"], "target": "ill", "embed": {"age": 6, "zip": 1}, "epsilon": 300,
    "delta": 1e-6, "rounds": 30, "people": 480, "clip": 1, "rate": 3.0, "momentum": 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with several(tmp_path_factory.mktemp("tables")) as made:
        yield made


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FederatedVault]:
    """Four vaults of made-up pictures, as one."""
    folder = tmp_path_factory.mktemp("pictures")
    with ExitStack() as held:
        vaults = {}
        for name in NAMES:
            (folder / name).mkdir()
            vaults[name] = held.enter_context(sfumato.open(make_vault(folder / name)))
            rows = write_digits(folder / f"{name}.csv", list(digits(PICTURES, name)))
            vaults[name].add("digits", rows, digits_card(f"of-{name}", PICTURES))
        agreement = {
            "name": "readers", "convener": new_convener(folder / "key"), "floor": 3,
            "colluders": 1,
            "sites": {name: one.call("site-key", {})["key"] for name, one in vaults.items()},
        }  # fmt: skip
        for vault in vaults.values():
            vault.call("join-federation", {"data_set": "digits", **agreement})
        yield sfumato.federation(agreement, key=folder / "key", sites=vaults)


def table_rows() -> list[dict[str, Any]]:
    return [{"age": age, "zip": zip_, "ill": ill == "true"} for _, age, zip_, _, ill in pooled()]


def test_four_vaults_read_digits_by_a_convolution(readers: FederatedVault, tmp_path: Path) -> None:
    public, steps = list(digits(400, "public")), list[Step]()
    model = readers.train(
        "digits", features=list(FEATURES), target=TARGET, image=(1, SIDE, SIDE), conv=[CONV],
        activation="tanh", rounds=24, people=4 * PICTURES, clip=1, rate=2.0, momentum=0.8,
        epsilon=60, delta=1e-5, heard=steps.append,
    )  # fmt: skip
    assert model.accuracy(public) > 0.5  # by chance 0.1
    assert model.loss(public) < steps[0].model.loss(public)
    assert readers.spent("digits") == dict.fromkeys(NAMES, 60)
    assert "with 1 convolution learns digit" in model.card["says"]
    assert model.card["lesson"]["conv"] == [CONV]
    model.save(tmp_path / "digits.safetensors")
    found = (tmp_path / "digits.safetensors").read_bytes()
    header = json.loads(found[8 : 8 + int.from_bytes(found[:8], "little")])
    names = [(name, one["shape"]) for name, one in header.items() if name != "__metadata__"]
    assert names == [
        ("conv.0.weight", [6, 1, 3, 3]), ("conv.0.bias", [6]), ("0.weight", [10, 96]),
        ("0.bias", [10]),
    ]  # fmt: skip
    again = TrainedModel.load(tmp_path / "digits.safetensors")
    assert again.predict(public) == model.predict(public)
    wrong = tmp_path / "wrong.safetensors"
    assert rb"\"pool\": 2" in found
    wrong.write_bytes(found.replace(rb"\"pool\": 2", rb"\"pool\": 1"))
    with pytest.raises(Refused, match="bad-request"):
        TrainedModel.load(wrong)  # four times as much would go into the first linear layer
    replace(model, features=model.features[1:]).save(wrong)
    with pytest.raises(Refused, match="bad-request"):
        TrainedModel.load(wrong)


def test_four_vaults_learn_whom_a_table_s_entries_are_of(sites: Sites, tmp_path: Path) -> None:
    """Of ages and towns, of which a linear layer sees none as a number."""
    model = sites.together().train("patients", **WARDS)
    rows = table_rows()
    most = max(sum(row["ill"] for row in rows), sum(not row["ill"] for row in rows)) / len(rows)
    assert model.accuracy(rows) > most + 0.1
    assert "with 2 tables of entries learns ill" in model.card["says"]
    path = tmp_path / "ill.safetensors"
    model.save(path)
    assert TrainedModel.load(path).predict(rows[:50]) == model.predict(rows[:50])
    header = path.read_bytes()
    assert b'"embed.0.weight":{"dtype":"F32","shape":[111,6]' in header
    assert b'"embed.1.weight":{"dtype":"F32","shape":[2,1]' in header


def test_whoever_is_older_than_the_card_allows_is_foretold_as_the_oldest(sites: Sites) -> None:
    model = sites.together().train("patients", **{**WARDS, "rounds": 1, "epsilon": 20})
    old, young = [{"age": age, "zip": "10002"} for age in (110, 0)]
    assert (said(model, {**old, "age": 4000}) == said(model, old)).all()
    assert (said(model, {**young, "age": -3}) == said(model, young)).all()
    assert (said(model, old) != said(model, young)).any()
    with pytest.raises(ValueError, match="'99999' is not a key of 'zip'"):
        model.predict([{**old, "zip": "99999"}])


def said(model: TrainedModel, row: dict[str, Any]) -> np.ndarray:
    return np.asarray(model._says([row]))


@pytest.mark.parametrize("place", [0, 9, 300, 500, -1])
def test_a_file_with_a_byte_less_is_refused(sites: Sites, tmp_path: Path, place: int) -> None:
    path = tmp_path / "model.safetensors"
    sites.together().train("patients", **{**WARDS, "rounds": 1, "epsilon": 20}).save(path)
    found = bytearray(path.read_bytes())
    del found[place]
    path.write_bytes(bytes(found))
    with pytest.raises(Refused, match="bad-request"):
        TrainedModel.load(path)


def test_a_file_whose_front_is_another_than_its_numbers_is_refused(
    sites: Sites, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    sites.together().train("patients", **{**WARDS, "rounds": 1, "epsilon": 20}).save(path)
    found = path.read_bytes()
    assert rb"[0, 111, 6]" in found
    for wrong in (b"[0, 112, 6]", b"[0, 111, 1]", b"[7, 111, 6]", b'["", 11, 6]'):
        path.write_bytes(found.replace(b"[0, 111, 6]", wrong))
        with pytest.raises(Refused, match="bad-request"):
            TrainedModel.load(path)


@pytest.mark.parametrize("own", [{"each": "person"}, {}], ids=["people", "sites"])
def test_own_steps_are_taken_with_a_table_and_a_convolution(
    sites: Sites, own: dict[str, Any]
) -> None:
    front = {"image": [1, 1, 1], "conv": [{"channels": 2, "kernel": 1}], "embed": {"zip": 1}}
    more = {**front, "local": 2, "local_rate": 1, "rounds": 2, "epsilon": 40, **own}
    model = sites.together().train("patients", **{**WARDS, **more})
    assert model.card["rounds"] == 2
    assert model.network.size == 4 + 2 + 3 * 2 + 2


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"image": [1, 1, 1]}, "conv must be a list of 1 to 4"),
        ({"conv": [{"channels": 1, "kernel": 1}]}, "image must be channels, height and width"),
        ({"conv": [8], "image": (1, 1, 1)}, "a convolution must be an object"),
        ({"conv": (8,), "image": 8}, "image must be channels, height and width"),
        ({"embed": {"salary": 2}}, "a column with a table is one of the features"),
        (
            {"features": ["salary"], "embed": {"salary": 2}},
            "must have 2 to 4,096 values by its card",
        ),
    ],
)
def test_what_is_no_front_costs_no_site_anything(
    sites: Sites, wrong: dict[str, Any], why: str
) -> None:
    before = sites.spent()
    with pytest.raises(Refused, match=rf"bad-request.*{why}"):
        sites.together().train("patients", **{**WARDS, **wrong})
    assert sites.spent() == before
