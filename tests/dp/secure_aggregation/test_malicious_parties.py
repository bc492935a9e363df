"""Servers and sites that lie: what each message is held against, and that nothing is learnt."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation import secret_sharing
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields
from sfumato.dp.secure_aggregation.participant import Participant
from sfumato.dp.secure_aggregation.round_terms import (
    Member,
    Terms,
    Trust,
    invitation,
    signed,
    terms_for,
)
from support.secure_aggregation_rounds import CONVENER, STAGES, Round, key_of, public

KINDS = dict(zip(STAGES, ("keys", "shares", "masked", "agreement", "revealed"), strict=True))


def survivors_of(round_: Round, names: list[str]) -> bytes:
    """A list of survivors as a server that leaves some out would send it."""
    claims = [
        decode_fields(said, "masked", 2)[0]
        for n, s, said in round_.sent
        if s == "mask" and n in names
    ]
    return encode_fields("survivors", *claims)


def test_a_server_that_claims_two_lists_of_survivors_is_answered_by_nobody() -> None:
    """Half are told that s00 dropped out, half that it survived: neither list finds its floor."""
    round_ = Round(sites=6, floor=4).up_to("agree")
    without = survivors_of(round_, round_.names[1:])
    everyone = survivors_of(round_, round_.names)
    said = {
        name: round_.sites[name].agree(without if i < 3 else everyone)
        for i, name in enumerate(round_.names)
        if i > 0
    }
    for name, site in round_.sites.items():
        if name in said:
            with pytest.raises(Refused, match="agreed on another list of survivors"):
                site.reveal(encode_fields("agreements", *said.values()))
            assert "_held" not in vars(site)


def test_a_site_speaks_for_one_list_only() -> None:
    round_ = Round(sites=6, floor=4).up_to("agree")
    site = round_.sites["s01"]
    site.agree(survivors_of(round_, round_.names[1:]))
    with pytest.raises(Refused, match="stage"):
        site.agree(survivors_of(round_, round_.names))


def test_too_few_words_for_a_list_reveal_nothing() -> None:
    round_ = Round(sites=6, floor=4).up_to("agree")
    survivors = survivors_of(round_, round_.names)
    said = [round_.sites[name].agree(survivors) for name in round_.names]
    for few in (said[:3], [*said[:3], said[0]]):
        site = Round(sites=6, floor=4).up_to("agree").sites["s05"]
        site.agree(survivors)
        with pytest.raises(Refused, match="sum-too-few"):
            site.reveal(encode_fields("agreements", *few))


def test_of_one_site_both_secrets_are_never_to_be_had() -> None:
    """Whatever lists are agreed on, the shares revealed are all of one of the two secrets."""
    for gone in ({}, {"s00": "mask"}):
        round_ = Round(sites=5, floor=4)
        round_.play(gone)
        shares = [
            bytes(item)
            for _, stage, said in round_.sent
            if stage == "reveal"
            for item in decode_fields(
                decode_fields(decode_fields(said, "signed", 2)[0], "revealed", 3)[2], "unsealed"
            )
        ]
        of_first = [share for share in shares if share[:8] == bytes(8)]
        kept = {i: share[8:] for i, share in enumerate(of_first)}
        assert len(of_first) == 4
        assert {len(share) for share in kept.values()} == {secret_sharing.SHARE_BYTES}


@pytest.mark.parametrize("stage", ["mask", "agree"])
def test_a_list_below_the_floor_is_refused_by_every_site(stage: str) -> None:
    round_ = Round(sites=6, floor=4).up_to(stage)
    for name, message in round_.box.items():
        if stage == "mask":
            sharers = encode_fields("sharers", *(i.to_bytes(8, "little") for i in range(3)))
            message = encode_fields("delivery", sharers, decode_fields(message, "delivery", 2)[1])
        else:
            message = survivors_of(round_, round_.names[:3])
        with pytest.raises(Refused, match="sum-too-few"):
            round_.say(name, stage, message)


def test_a_site_whose_own_keys_are_not_announced_shares_nothing() -> None:
    round_ = Round(sites=6, floor=4).up_to("share")
    for place, (name, message) in enumerate(round_.box.items()):
        others = [one for at, one in enumerate(decode_fields(message, "announced")) if at != place]
        with pytest.raises(Refused, match="sum-too-few"):
            round_.say(name, "share", encode_fields("announced", *others))


@pytest.mark.parametrize(
    "places", [[0, 1, 2, 3, 4, 5, 6], [1, 0, 2, 3, 4, 5], [0, 0, 1, 2, 3, 4, 5]]
)
def test_a_list_that_is_no_list_of_the_cohort_is_read_by_no_site(places: list[int]) -> None:
    round_ = Round(sites=6, floor=4).up_to("mask")
    sharers = encode_fields("sharers", *(place.to_bytes(8, "little") for place in places))
    for name, message in round_.box.items():
        told = encode_fields("delivery", sharers, decode_fields(message, "delivery", 2)[1])
        with pytest.raises(Refused, match="not a message of the kind 'sharers'"):
            round_.say(name, "mask", told)


def test_sites_that_were_told_of_different_sharers_reveal_nothing() -> None:
    """Else one that was told of fewer would wear fewer masks than the others take off."""
    round_ = Round(sites=6, floor=4).up_to("mask")
    sharers, mine = decode_fields(round_.box["s00"], "delivery", 2)
    places = decode_fields(sharers, "sharers")
    kept = [item for item in decode_fields(mine, "mine") if item[:8] != places[5]]
    told = encode_fields(
        "delivery", encode_fields("sharers", *places[:5]), encode_fields("mine", *kept)
    )
    said = {
        name: round_.say(name, "mask", told if name == "s00" else message)
        for name, message in round_.box.items()
    }
    with pytest.raises(Refused, match="told of other sharers"):
        round_.collector.take(said["s00"])  # an honest server adds nothing of it
    survivors = encode_fields(
        "survivors", *(decode_fields(one, "masked", 2)[0] for one in said.values())
    )
    for site in round_.sites.values():
        with pytest.raises(Refused, match="different sharers"):
            site.agree(survivors)


def test_a_ring_that_colluders_could_cut_is_not_agreed_on() -> None:
    round_ = Round(sites=13, neighbours=4, colluders=0, floor=8).up_to("mask")
    ring = [round_.names[place] for place in round_.terms.ring]
    round_.stage("mask", gone=[ring[0], ring[1], ring[6], ring[7]])
    with pytest.raises(Refused, match="neighbours are missing"):
        round_.stage("agree")


def test_the_same_losses_elsewhere_on_the_ring_are_borne() -> None:
    round_ = Round(sites=13, neighbours=4, colluders=0, floor=8, threshold=2)
    ring = [round_.names[place] for place in round_.terms.ring]
    gone = [ring[0], ring[3], ring[6], ring[9]]
    total = round_.play(dict.fromkeys(gone, "mask"))
    assert (total == round_.sum_of([name for name in round_.names if name not in gone])).all()


JUNK: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda said: b"",
    "a pickle": lambda said: pickle.dumps({"update": [1.0]}),
    "cut short": lambda said: said[:-1],
    "too long": lambda said: said + b"\0",
    "a bit turned in it": lambda said: said[:-5] + bytes([said[-5] ^ 1]) + said[-4:],
    "a length beyond it": lambda said: said.replace(b"\x40" + bytes(7), b"\xff" * 8, 1),
    "a megabyte of nines": lambda said: b"9" * (1 << 20),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("junk", JUNK)
def test_nonsense_is_refused_and_the_round_goes_on_without_it(stage: str, junk: str) -> None:
    round_ = Round(sites=5, floor=4).up_to(stage)
    said = round_.say("s02", stage, round_.box["s02"])
    with pytest.raises(Refused, match="sum-message-refused"):
        round_.collector.take(JUNK[junk](said))
    rest = STAGES[STAGES.index(stage) :]
    for later in rest:
        round_.stage(later, gone=["s02"] if later == stage else [])
    left = [n for n in round_.names if n != "s02" or stage in ("agree", "reveal")]
    assert (round_.collector.total() == round_.sum_of(left)).all()


@pytest.mark.parametrize("stage", STAGES)
def test_a_message_is_taken_once_at_its_stage_and_from_its_round(stage: str) -> None:
    round_ = Round(sites=4, floor=4).up_to(stage)
    said = round_.say("s00", stage, round_.box["s00"])
    round_.collector.take(said)
    with pytest.raises(Refused, match="already"):
        round_.collector.take(said)
    other = Round(sites=4, floor=4, size=9).up_to(stage)
    with pytest.raises(Refused, match="sum-message-refused"):
        other.collector.take(said)


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_a_message_that_comes_late_is_refused(stage: str) -> None:
    round_ = Round(sites=5, floor=4).up_to(stage)
    late = round_.say("s04", stage, round_.box["s04"])
    round_.stage(stage, gone=["s04"])
    with pytest.raises(Refused, match="sum-message-refused"):
        round_.collector.take(late)


def test_nobody_comes_back_at_a_later_stage() -> None:
    round_ = Round(sites=5, floor=4).up_to("share")
    message = round_.box["s04"]
    round_.stage("share", gone=["s04"])
    shared = decode_fields(round_.box["s00"], "delivery", 2)[0]
    round_.sites["s04"].share(message)
    claim = signed("update", key_of("s04"), 4, round_.terms.digest, bytes(32), bytes(32))
    with pytest.raises(Refused, match="left the round"):
        round_.collector.take(encode_fields("masked", claim, bytes(32)))
    assert len(decode_fields(shared, "sharers")) == 4


def test_one_site_cannot_speak_for_another() -> None:
    round_ = Round(sites=4)
    forged = signed("keys", key_of("s01"), 0, round_.terms.digest, bytes(32), bytes(32))
    with pytest.raises(Refused, match="not signed by the site"):
        round_.collector.take(forged)


def test_keys_that_the_server_made_up_are_refused_by_the_sites() -> None:
    round_ = Round(sites=4, floor=4).up_to("share")
    said = [m for _, stage, m in round_.sent if stage == "join"]
    fake = signed("keys", CONVENER, 0, round_.terms.digest, bytes(32), bytes(32))
    with pytest.raises(Refused, match="not signed by the site"):
        round_.sites["s01"].share(encode_fields("announced", fake, *said[1:]))


@pytest.mark.parametrize("liar", ["s00", "s02", "s03"])
def test_wrong_shares_of_one_site_are_made_up_for_by_the_others_and_named(liar: str) -> None:
    """Three shares of each secret, any two of which give it."""
    round_ = Round(sites=4, floor=3, threshold=2).up_to("reveal")

    def spoil(name: str, _stage: str, said: bytes) -> bytes:
        return with_wrong_shares(round_, name, said) if name == liar else said

    round_.stage("reveal", spoil=spoil)
    assert (round_.collector.total() == sum(round_.values.values())).all()
    others = [name for name in round_.names if name != liar]
    assert round_.collector.wrong_shares == tuple((liar, other) for other in others)


def test_where_nobody_lies_nobody_is_named() -> None:
    round_ = Round(sites=4, floor=3, threshold=2).up_to("reveal")
    round_.stage("reveal")
    assert round_.collector.wrong_shares == ()


def test_who_deals_a_wrong_share_is_named_beside_whoever_has_to_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else any site could have an honest one called a liar."""
    round_ = Round(sites=4, floor=3, threshold=2).up_to("share")
    split, share = secret_sharing.split, round_.sites["s03"].share

    def crooked(*given: Any) -> dict[int, bytes]:
        dealt = split(*given)
        return {**dealt, 1: bytes([dealt[1][0] ^ 1]) + dealt[1][1:]}

    def dealing(announced: bytes) -> bytes:
        with monkeypatch.context() as here:
            here.setattr(secret_sharing, "split", crooked)
            return share(announced)

    monkeypatch.setattr(round_.sites["s03"], "share", dealing)
    for stage in STAGES[1:]:
        round_.stage(stage)
    assert (round_.collector.total() == sum(round_.values.values())).all()
    assert round_.collector.wrong_shares == (("s00", "s03"),)


@pytest.mark.parametrize("liars", [("s00",), ("s00", "s01"), ("s03", "s19")], ids=",".join)
def test_few_liars_among_many_sites_stop_no_sum_wherever_they_stand(liars: tuple[str, ...]) -> None:
    """By name the first would be in more choices of shares than are ever tried."""
    round_ = Round(sites=20, floor=14, size=2, colluders=2).up_to("reveal")

    def lie(name: str, _stage: str, said: bytes) -> bytes:
        return with_wrong_shares(round_, name, said) if name in liars else said

    round_.stage("reveal", spoil=lie)
    assert (round_.collector.total() == round_.sum_of(round_.names)).all()
    assert {shown for shown, _ in round_.collector.wrong_shares} == set(liars)


def with_wrong_shares(round_: Round, name: str, said: bytes) -> bytes:
    items = decode_fields(
        decode_fields(decode_fields(said, "signed", 2)[0], "revealed", 3)[2], "unsealed"
    )
    wrong = [item[:8] + bytes([item[8] ^ 1]) + item[9:] for item in items]
    place = int(name[1:])
    digest = round_.terms.digest
    return signed("revealed", key_of(name), place, digest, encode_fields("unsealed", *wrong))


def test_shares_that_do_not_give_what_was_promised_end_the_round() -> None:
    round_ = Round(sites=4, floor=4, threshold=3).up_to("reveal")
    messages = dict(round_.box)
    for name, message in messages.items():
        said = round_.say(name, "reveal", message)
        if name == "s03":
            items = decode_fields(
                decode_fields(decode_fields(said, "signed", 2)[0], "revealed", 3)[2], "unsealed"
            )
            wrong = [item[:8] + bytes([item[8] ^ 1]) + item[9:] for item in items]
            said = signed(
                "revealed", key_of(name), 3, round_.terms.digest, encode_fields("unsealed", *wrong)
            )
        round_.collector.take(said)
    with pytest.raises(Refused, match="promised"):
        round_.collector.close()


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(7, dtype=np.int64),
        np.zeros((8, 1), dtype=np.int64),
        np.zeros(8),
        np.full(8, np.nan),
        np.full(8, 2**31, dtype=np.int64),
        np.full(8, -(2**63), dtype=np.int64),
    ],
    ids=["short", "folded", "floats", "nan", "huge", "least"],
)
def test_a_site_sends_no_update_of_another_kind(values: np.ndarray) -> None:
    round_ = Round().up_to("mask")
    with pytest.raises(Refused, match="update-refused"):
        round_.sites["s00"].mask(round_.box["s00"], values)


def members(count: int) -> list[Member]:
    return [Member(f"s{i:02}", public(f"s{i:02}")) for i in range(count)]


GOOD = terms_for(members(7), nonce=bytes(32), size=3, bits=32, colluders=1)


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": bytes(31)},
        {"members": GOOD.members[:2]},
        {"members": GOOD.members[::-1]},
        {"members": (*GOOD.members[:6], Member("s99", GOOD.members[0].identity))},
        {"members": (*GOOD.members[:6], Member("s99", b"short"))},
        {"floor": 8},
        {"floor": 4},  # of 7 with one colluder: two lists of 4 share one site, which may lie
        {"colluders": 4},
        {"colluders": -1},
        {"neighbours": 3},
        {"neighbours": 0},
        {"neighbours": 7},
        {"threshold": 1},  # the colluder alone
        {"threshold": 7},
        {"size": 0},
        {"bits": 65},
        {"about": "x" * 1001},
    ],
    ids=str,
)
def test_terms_that_would_not_protect_a_site_cannot_be_made(change: dict[str, object]) -> None:
    with pytest.raises(Refused, match="sum-not-trusted"):
        dataclasses.replace(GOOD, **change)  # type: ignore[arg-type]  # wrong on purpose


def joining(
    trust: Trust, terms: Terms = GOOD, by: str = "the convener", name: str = "s00"
) -> bytes:
    site = Participant(name, key_of(name), trust, Round().sites["s00"]._dice, set())
    return site.join(invitation(terms, key_of(by)))


KNOWN = {member.name: member.identity for member in GOOD.members}
TRUST = Trust(public("the convener"), KNOWN, 4, 1)


def test_a_site_joins_what_its_card_allows() -> None:
    assert joining(TRUST)


@pytest.mark.parametrize(
    ("trust", "by", "name"),
    [
        (TRUST, "somebody else", "s00"),
        (dataclasses.replace(TRUST, floor=6), "the convener", "s00"),
        (dataclasses.replace(TRUST, colluders=2), "the convener", "s00"),
        (dataclasses.replace(TRUST, members={**KNOWN, "s03": bytes(32)}), "the convener", "s00"),
        (
            dataclasses.replace(TRUST, members={n: k for n, k in KNOWN.items() if n != "s03"}),
            "the convener",
            "s00",
        ),
        (TRUST, "the convener", "s20"),
    ],
    ids=["convener", "floor", "colluders", "another key", "a stranger", "not of the cohort"],
)
def test_a_site_that_cannot_trust_the_cohort_sends_nothing(
    trust: Trust, by: str, name: str
) -> None:
    with pytest.raises(Refused, match="sum-not-trusted"):
        joining(trust, by=by, name=name)


def test_an_invitation_is_accepted_once() -> None:
    used: set[bytes] = set()
    round_ = Round()
    round_.site("s00", used).join(round_.collector.invitation())
    with pytest.raises(Refused, match="with this nonce"):
        round_.site("s00", used).join(round_.collector.invitation())


def test_an_invitation_that_was_changed_is_not_accepted() -> None:
    encoded, signature = decode_fields(invitation(GOOD, CONVENER), "invitation", 2)
    changed = dataclasses.replace(GOOD, floor=7)
    site = Participant("s00", key_of("s00"), TRUST, Round().sites["s00"]._dice, set())
    assert encoded == GOOD.encoded()
    with pytest.raises(Refused, match="not signed by the convener"):
        site.join(encode_fields("invitation", changed.encoded(), signature))


def test_a_site_that_has_refused_takes_no_further_part() -> None:
    round_ = Round().up_to("share")
    with pytest.raises(Refused):
        round_.sites["s00"].share(b"nonsense")
    with pytest.raises(Refused, match="stage"):
        round_.sites["s00"].share(round_.box["s00"])
    assert "_mask" not in vars(round_.sites["s00"])


def test_the_collector_asks_for_the_sites_that_the_terms_name() -> None:
    assert Collector(GOOD, CONVENER).terms.place_of("s99") is None


@pytest.mark.parametrize("which", [0, 1], ids=["channel", "mask"])
def test_a_key_that_everyone_would_agree_with_leaves_its_site_out(which: int) -> None:
    """The others would find out only after they had paid."""
    round_ = Round(sites=4)
    good = round_.say("s01", "join", round_.box["s01"])
    keys = decode_fields(decode_fields(good, "signed", 2)[0], "keys", 4)[2:]
    keys[which] = bytes(32)
    with pytest.raises(Refused, match="cannot be used for a key agreement"):
        round_.collector.take(signed("keys", key_of("s01"), 1, round_.terms.digest, *keys))
    assert round_.collector.take(good) == "s01"


@pytest.mark.parametrize("stage", ["mask", "agree"])
def test_a_site_that_signs_to_have_heard_something_else_stops_no_other(stage: str) -> None:
    """Its word in a list would have every honest site refuse the list, after all have paid."""
    round_ = Round(sites=5, floor=4).up_to(stage)

    def other(name: str, stage: str, said: bytes) -> bytes:
        if name != "s02":
            return said
        kind = "update" if stage == "mask" else "agreement"
        claim, *rest = decode_fields(said, "masked", 2) if stage == "mask" else [said]
        _, _, told, digest = decode_fields(decode_fields(claim, "signed", 2)[0], kind, 4)
        changed = (bytes(32), digest) if stage == "mask" else (told, bytes(32))
        forged = signed(kind, key_of(name), 2, round_.terms.digest, *changed)
        return encode_fields("masked", forged, *rest) if rest else forged

    liar = round_.say("s02", stage, round_.box["s02"])
    with pytest.raises(Refused, match="sum-message-refused"):
        round_.collector.take(other("s02", stage, liar))
    for later in STAGES[STAGES.index(stage) :]:
        round_.stage(later, gone=["s02"] if later == stage else [])
    left = [name for name in round_.names if name != "s02" or stage == "agree"]
    assert (round_.collector.total() == round_.sum_of(left)).all()


def test_who_deals_shares_that_cannot_be_read_is_named_by_whom_they_are_for() -> None:
    """Nobody has masked anything, or paid."""
    round_ = Round(sites=4, floor=3).up_to("share")

    def junk(name: str, _stage: str, said: bytes) -> bytes:
        if name != "s02":
            return said
        promise, sealed = decode_fields(decode_fields(said, "signed", 2)[0], "shares", 4)[2:]
        spoilt = encode_fields("sealed", *(item[:-1] + bytes([item[-1] ^ 1]) for item in
                                  decode_fields(sealed, "sealed")))  # fmt: skip
        return signed("shares", key_of(name), 2, round_.terms.digest, promise, spoilt)

    round_.stage("share", spoil=junk)
    for name in ("s00", "s01", "s03"):
        with pytest.raises(Refused, match="cannot read the shares that 's02' sent"):
            round_.sites[name].receive_shares(round_.box[name])
