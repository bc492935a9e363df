"""A fleet's sites: new processes at every stage, charged before a row is read. Needs no Flower."""

from __future__ import annotations

import importlib.util
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.message_encoding import decode_fields
from sfumato.features.federated import flower
from sfumato.features.federated.agreement import Agreement, read_agreement
from sfumato.features.federated.flower import join_fleet, new_site, schedule, spent_at
from sfumato.features.federated.flower.fleet_node import SPENT
from sfumato.features.federated.flower.fleet_schedule import (
    Plan,
    check_records,
    flat,
    moved,
    number_and_task,
    read_schedule,
    task_digest,
)
from support.flower_fleets import CONVENER, MODEL, NAMES, SETTINGS, SIZE, Fleet, plain, priced


def agreed() -> Agreement:
    keys = [bytes([at]) * 32 for at in range(5)]
    sites = {name: key.hex() for name, key in zip(NAMES, keys, strict=False)}
    words = {"name": "fleet", "convener": keys[4].hex(), "sites": sites, "floor": 3, "colluders": 1}
    return read_agreement(words)


def refusal(fleet: Fleet, name: str, stage: str, message: bytes | None = None) -> str:
    with pytest.raises(Refused) as caught:
        fleet.say(name, stage, fleet.box[name] if message is None else message)
    return caught.value.code


def test_the_sum_is_the_pooled_one_when_there_is_no_noise(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    assert np.array_equal(fleet.play(plain()), fleet.pooled())


@pytest.mark.parametrize("stage", ["share", "mask", "agree", "reveal"])
@pytest.mark.parametrize("name", ["east", "west"])
def test_the_sum_of_who_is_left_is_right_whoever_goes(
    tmp_path: Path, name: str, stage: str
) -> None:
    fleet = Fleet(tmp_path)
    left = [n for n in NAMES if n != name or stage in ("agree", "reveal")]
    found = fleet.play(priced(), gone={name: stage})
    assert fleet.collector.survivors == tuple(left)
    # noise of 1 to 4 shares has a width of some 3 clips of 64; a sum of other masks has any size
    assert np.abs(found - fleet.pooled(left)).max() < 64 * 100


@pytest.mark.parametrize("stage", ["share", "mask", "agree", "reveal"])
def test_without_noise_no_site_drops_out_of_a_sum(tmp_path: Path, stage: str) -> None:
    """The difference to a sum over all of them, from the same model, would be that site's."""
    fleet = Fleet(tmp_path)
    assert fleet.agreement.floor == 3
    fleet.play(plain())
    with pytest.raises(Refused) as caught:
        fleet.play(plain(), 2, gone={"east": stage})
    assert caught.value.code == "sum-too-few"


def test_a_server_that_lowers_the_floor_is_refused_where_there_is_no_noise(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    plan = Plan(fleet.agreement, plain())
    about = fleet.begin(plain()).terms.about
    terms = fleet.agreement.terms(bytes(32), SIZE, plan.bits, about)  # the agreement's floor
    message = Collector(terms, CONVENER).invitation()
    assert refusal(fleet, "east", "join", message) == "sum-not-trusted"


def test_a_fleet_of_neighbours_adds_up_and_takes_no_other_ring(tmp_path: Path) -> None:
    """Two neighbours of three others: where one is lost, another could part those who are left."""
    fleet = Fleet(tmp_path, neighbours=2)
    assert np.array_equal(fleet.play(plain()), fleet.pooled())
    everybody = replace(fleet.begin(priced(), 2).terms, neighbours=3)
    message = Collector(everybody, CONVENER).invitation()
    assert refusal(fleet, "east", "join", message) == "sum-not-trusted"
    fleet.up_to("mask", priced(), 2)
    fleet.stage("mask", gone={"west"})
    assert {refusal(fleet, name, "agree") for name in fleet.box} == {"sum-too-few"}


def test_a_record_that_nobody_signed_is_refused() -> None:
    check_records(["sfumato", "arrays", "config"])
    for more in ("control", "metrics"):
        with pytest.raises(Refused):
            check_records(["sfumato", "arrays", "config", more])


def test_below_the_floor_there_is_no_sum(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    with pytest.raises(Refused) as caught:
        fleet.play(priced(), gone={"east": "mask", "west": "mask"})
    assert caught.value.code == "sum-too-few"


def test_no_word_that_is_sent_is_one_of_the_update(tmp_path: Path) -> None:
    """By chance one is once in 600,000 times; how even they are, the slow test says."""
    fleet = Fleet(tmp_path)
    fleet.play(plain())
    plan = Plan(fleet.agreement, plain())
    assert plan.bits == 24
    for name, stage, said in fleet.said:
        if stage == "mask":
            update = fleet.updates[name]()
            assert update is not None
            bare = np.rint(update / float(plan.grid.clip) * plan.grid.steps).astype(np.int64)
            words = np.frombuffer(decode_fields(said, "masked", 2)[1], "<u4")
            assert not (words == bare % (1 << plan.bits)).any()


def test_every_site_of_a_noisy_sum_pays_once_for_all_its_rounds(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    for number in (1, 2):
        fleet.play(priced(), number)
        assert {spent_at(tmp_path / name)["epsilon"] for name in NAMES} == {"1"}
    assert spent_at(tmp_path / "east")["delta"] == str(Fraction(1, 10**6))


def test_the_noise_is_enough_for_a_person_who_changes_the_update_to_any_other() -> None:
    """So the price is of two clips, at the floor without the colluders, for all rounds."""
    plan = Plan(agreed(), priced(1, 5))
    assert plan.noise is not None
    assert plan.noise.moves == 2
    assert plan.noise.epsilon(Fraction(1, 10**6), 5) <= 1
    assert plan.noise.share == plan.noise.variance / 2  # floor 3, colluders 1
    # a Gaussian of these rounds needs about 4.3 times the sensitivity for each root of a round
    assert 4 * 2 * 5**0.5 < plan.spread / 64 < 7 * 2 * 5**0.5


def test_it_is_charged_before_the_app_sees_a_row(tmp_path: Path) -> None:
    fleet, seen = Fleet(tmp_path), []

    def learn() -> np.ndarray:
        seen.append(spent_at(tmp_path / "east")["epsilon"])
        return np.zeros(SIZE)

    fleet.updates["east"] = learn
    fleet.up_to("mask", priced())
    assert spent_at(tmp_path / "east")["epsilon"] == "0"
    fleet.stage("mask")
    assert seen == ["1"]


def test_a_client_killed_while_it_trains_has_paid_and_is_out(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)

    def killed() -> None:
        raise KeyboardInterrupt

    fleet.updates["east"] = killed
    fleet.up_to("mask", priced())
    with pytest.raises(KeyboardInterrupt):
        fleet.say("east", "mask", fleet.box["east"])
    assert spent_at(tmp_path / "east")["epsilon"] == "1"
    assert refusal(fleet, "east", "mask") == "sum-message-refused"
    fleet.updates["east"] = lambda: np.zeros(SIZE)
    fleet.begin(priced())  # the same number again
    assert refusal(fleet, "east", "join") == "sum-not-trusted"


def test_a_schedule_beyond_the_cap_is_refused_before_keys_are_sent(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.play(priced(1.5))
    fleet.begin(priced(0.6))
    assert refusal(fleet, "east", "join") == "budget-exceeded"
    fleet.play(priced(0.5))
    assert spent_at(tmp_path / "east")["epsilon"] == "2"


def test_a_delta_beyond_the_cap_is_refused_too(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, delta="1e-7")
    fleet.begin(priced())
    assert refusal(fleet, "east", "join") == "budget-exceeded"


def test_two_rounds_at_once_cannot_both_pass_the_cap(tmp_path: Path) -> None:
    """It is looked at again when it is charged, not only when a round begins."""
    fleet = Fleet(tmp_path)
    fleet.up_to("mask", priced(1.5))
    first, box = fleet.collector, fleet.box
    fleet.keys = dict(fleet.keys)
    second = Fleet.__new__(Fleet)
    second.__dict__.update(fleet.__dict__)
    kept = (tmp_path / "east" / SPENT).read_bytes()
    second.play(priced(0.75))
    _put_back_kept(tmp_path / "east" / SPENT, kept)
    fleet.collector, fleet.box = first, box
    assert refusal(fleet, "east", "mask") == "budget-exceeded"


def _put_back_kept(path: Path, earlier: bytes) -> None:
    """Put back what a round had kept, as though both had been under way together."""
    old = path.with_name("old.sqlite")
    old.write_bytes(earlier)
    database = sqlite3.connect(path)
    database.execute("ATTACH ? AS old", (str(old),))
    database.execute("INSERT INTO kept SELECT * FROM old.kept")
    database.commit()
    database.close()


def test_a_round_is_answered_once_in_whatever_sum(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.play(plain())
    fleet.begin(plain())
    assert refusal(fleet, "east", "join") == "sum-not-trusted"
    fleet.begin(plain(), 3)
    assert refusal(fleet, "east", "join") == "sum-not-trusted"  # of two
    fleet.play(plain(), 2)


def test_an_invitation_is_answered_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.begin(plain())
    fleet.say("east", "join", fleet.box["east"])
    assert refusal(fleet, "east", "join") == "sum-not-trusted"


@pytest.mark.parametrize("stage", ["share", "mask", "agree", "reveal"])
def test_a_stage_is_done_once_from_one_state(tmp_path: Path, stage: str) -> None:
    """Else a server could have one neighbour's both secrets, from two processes."""
    fleet = Fleet(tmp_path)
    fleet.up_to(stage, plain())
    fleet.say("east", stage, fleet.box["east"])
    assert refusal(fleet, "east", stage) == "sum-message-refused"


def test_a_message_that_is_refused_ends_the_round_for_the_site(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.up_to("agree", plain())
    assert refusal(fleet, "east", "agree", b"nonsense") == "sum-message-refused"
    assert refusal(fleet, "east", "agree") == "sum-message-refused"


def test_a_supernode_that_ended_has_taken_its_secrets_with_it(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.up_to("mask", plain())
    fleet.keys["east"] = bytes(32)
    assert refusal(fleet, "east", "mask") == "sum-message-refused"


def test_the_file_alone_tells_no_secret(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.up_to("agree", plain())
    player, _ = fleet.part("east")._resumed(fleet.collector.terms.nonce)
    on_disk = (tmp_path / "west" / SPENT).read_bytes()
    west, _ = fleet.part("west")._resumed(fleet.collector.terms.nonce)
    secrets = [west._seed, west._mask_secret, *(x for both in west._held.values() for x in both)]
    assert len(secrets) == 8
    assert not any(secret in on_disk for secret in secrets)
    assert player.serialise() not in on_disk


@pytest.mark.parametrize("name", ["other model", "other settings"])
def test_sites_train_from_the_one_model_that_all_have_signed(tmp_path: Path, name: str) -> None:
    fleet = Fleet(tmp_path)
    fleet.up_to("mask", plain())
    deep = MODEL["deep"] + np.float32(1)
    others = {
        "other model": task_digest({**MODEL, "deep": deep}, SETTINGS),
        "other settings": task_digest(MODEL, {**SETTINGS, "raw": "00"}),
    }
    fleet.task = others[name]
    fleet.updates["east"] = lambda: pytest.fail("it trained")
    assert refusal(fleet, "east", "mask") == "sum-not-trusted"


@pytest.mark.parametrize(
    "found", [None, np.full(SIZE, np.nan), np.full(SIZE, np.inf), np.zeros(SIZE + 1)],
    ids=["nothing", "nan", "infinite", "another shape"],
)  # fmt: skip
def test_whether_an_app_failed_is_hidden_where_a_sum_is_private(
    tmp_path: Path, found: np.ndarray | None
) -> None:
    fleet = Fleet(tmp_path)
    fleet.updates["east"] = lambda: found
    fleet.play(priced())
    assert fleet.collector.survivors == NAMES
    fleet.up_to("mask", plain())
    assert refusal(fleet, "east", "mask") == "update-refused"


def test_sums_without_noise_are_for_owners_who_let_them(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, lets_average=False)
    fleet.begin(plain())
    assert refusal(fleet, "east", "join") == "sum-not-trusted"
    assert (plain().guarantee, priced().guarantee) == ("secure-average (not DP)", "central-dp")


def test_a_price_that_is_not_the_terms_own_is_refused(tmp_path: Path) -> None:
    """The width and the digest follow from the schedule; a server cannot name another."""
    fleet = Fleet(tmp_path)
    fleet.begin(priced(1))
    fleet.wanted = priced(2)
    assert refusal(fleet, "east", "join") == "sum-not-trusted"


def test_without_the_file_of_charges_nothing_is_sent(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.begin(plain())
    (tmp_path / "east" / SPENT).unlink()
    assert refusal(fleet, "east", "join") == "ledger-unavailable"
    assert not (tmp_path / "east" / SPENT).exists()
    (tmp_path / "east" / SPENT).write_bytes(b"no database" * 99)
    assert refusal(fleet, "east", "join") == "ledger-unavailable"


def test_a_site_is_made_in_an_empty_folder_and_joins_under_its_own_key(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    with pytest.raises(Refused, match="not empty"):
        new_site(tmp_path / "east", "east", epsilon=1, delta="1e-6")
    words = dict(fleet.agreement.as_json())
    new_site(tmp_path / "anew", "east", epsilon=1, delta="1e-6")
    with pytest.raises(Refused, match="its name and key"):
        join_fleet(tmp_path / "anew", words)
    assert (tmp_path / "anew" / "site.key").stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    "change",
    ["epsilon", "clip", "size", "rounds", "more", "no-json", "spaces", "exponent"],
)
def test_a_schedule_is_read_in_one_spelling_or_refused(change: str) -> None:
    text = priced().spelled()
    assert read_schedule(text) == priced()
    wrong = {
        "epsilon": text.replace('"epsilon":"1"', '"epsilon":null'),
        "clip": text.replace('"clip":"64"', '"clip":"0"'),
        "size": text.replace('"size":7', '"size":0'),
        "rounds": text.replace('"rounds":2', '"rounds":true'),
        "more": text.replace("{", '{"moves":1,'),
        "no-json": text[:-1],
        "spaces": text.replace(":", ": "),
        "exponent": text.replace('"clip":"64"', '"clip":"1e9999999"'),
    }[change]
    assert wrong != text
    with pytest.raises(Refused, match="schedule cannot be used"):
        read_schedule(wrong)


def test_noise_too_wide_for_fine_steps_is_drawn_in_coarser_ones() -> None:
    plan = Plan(agreed(), schedule("big", size=10_000, clip=1, rounds=1, epsilon=1, delta="1e-6"))
    assert plan.noise is not None
    assert 100 <= plan.grid.steps < 1600
    assert plan.noise.epsilon(Fraction(1, 10**6), 1) <= 1
    with pytest.raises(Refused) as caught:
        _ = Plan(
            agreed(), schedule("b", size=10_000, clip=1, rounds=1, epsilon="0.001", delta="1e-9")
        ).noise
    assert caught.value.code == "noise-out-of-range"


def test_a_model_goes_flat_and_back() -> None:
    update = np.arange(SIZE, dtype=np.float64)
    found = moved(MODEL, update)
    assert {name: array.dtype for name, array in found.items()} == {
        name: array.dtype for name, array in MODEL.items()
    }
    assert np.array_equal(flat(found, MODEL), update)
    for wrong in ({}, {**MODEL, "bias": np.zeros(2)}, {"deep": MODEL["deep"]}):
        with pytest.raises(Refused):
            flat(wrong, MODEL)
    counts = {"batches": np.zeros(1, np.int64)}
    with pytest.raises(Refused):
        flat(counts, counts)


def test_a_round_without_a_number_is_refused() -> None:
    for about in ("", "x/y/z", "x/-1/z", "x/" + "9" * 5000 + "/z"):
        with pytest.raises(Refused):
            number_and_task(about)


def test_flower_is_asked_for_only_where_it_is_used() -> None:
    if importlib.util.find_spec("flwr") is not None:
        pytest.skip("Flower is installed here")
    with pytest.raises(Refused) as caught:
        _ = flower.secure_mod
    assert caught.value.code == "not-installed"
