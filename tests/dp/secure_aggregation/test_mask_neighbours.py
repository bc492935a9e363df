"""Rings of neighbours: whom they keep together, what they bear, and what a convener gains by them.

Whoever convenes chooses the nonce, and with it the order of the ring: so every claim is tried for
all who may collude, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation import secret_sharing
from sfumato.dp.secure_aggregation.collector import Collector
from sfumato.dp.secure_aggregation.masks import (
    add_mask,
    own_key,
    reduced,
    take_mask,
    to_signed,
    word_type,
)
from sfumato.dp.secure_aggregation.message_encoding import decode_fields, encode_fields
from sfumato.dp.secure_aggregation.participant import keys_in, pair_key
from sfumato.dp.secure_aggregation.round_terms import (
    Member,
    Terms,
    Trust,
    accepted,
    fewest_neighbours,
    invitation,
    shares_needed,
    terms_for,
)
from support.secure_aggregation_rounds import CONVENER, Integers, Round, public, shares_in


def ring_of(
    count: int, neighbours: int, colluders: int = 1, floor: int | None = None, nonce: int = 0
) -> Terms:
    """Terms of a round of so many sites."""
    return terms_for(
        [Member(f"s{i:02}", public(f"s{i:02}")) for i in range(count)],
        nonce=sha256(nonce.to_bytes(4, "little")).digest(),
        size=1,
        bits=32,
        floor=floor,
        colluders=colluders,
        neighbours=neighbours,
    )


def subsets(places: range, least: int) -> Iterator[frozenset[int]]:
    for count in range(least, len(places) + 1):
        yield from map(frozenset, combinations(places, count))


def are_joined(terms: Terms, honest: frozenset[int]) -> bool:
    """Say whether masks between honest neighbours bind all of them into one."""
    seen, todo = set[int](), [min(honest)]
    while todo:
        place = todo.pop()
        if place not in seen:
            seen.add(place)
            todo += terms.near_of(place) & honest
    return seen == honest


SHAPES = [(6, 2, 1), (6, 4, 1), (7, 4, 2), (8, 4, 1), (8, 4, 3), (8, 6, 2), (9, 6, 3)]


@pytest.mark.parametrize(("count", "neighbours", "colluders"), SHAPES)
def test_what_holds_together_is_parted_by_no_colluders(
    count: int, neighbours: int, colluders: int
) -> None:
    terms = ring_of(count, neighbours, colluders, floor=count)
    seen = set()
    for left in subsets(range(count), colluders + 2):
        holds = terms.holds_together(left)
        honest = [left - set(gone) for gone in combinations(sorted(left), colluders)]
        if holds:
            assert all(are_joined(terms, one) for one in honest)
        if not all(are_joined(terms, one) for one in honest):
            assert not holds
        seen.add(holds)
    assert seen == {False, True}


@pytest.mark.parametrize("count", [4, 5, 7])
@pytest.mark.parametrize("colluders", [0, 1, 2])
def test_where_everybody_is_a_neighbour_two_honest_sites_are_enough(
    count: int, colluders: int
) -> None:
    terms = ring_of(count, count - 1, colluders, floor=count)
    for left in subsets(range(count), 0):
        assert terms.holds_together(left) == (len(left) >= colluders + 2)


def test_what_is_refused_can_be_parted_but_where_the_two_runs_touch() -> None:
    """So a ring is not refused for nothing: of 8, with 2 gone, every cut is a true one."""
    terms = ring_of(8, 4, colluders=2, floor=8)
    for left in subsets(range(8), 6):
        if not terms.holds_together(left):
            honest = [left - set(gone) for gone in combinations(sorted(left), 2)]
            assert not all(are_joined(terms, one) for one in honest)


def cohorts() -> list[tuple[int, int, int]]:
    """Sites, floor and colluders, of all that a round may have."""
    return [
        (count, floor, colluders)
        for count in range(4, 10)
        for floor in range(3, count + 1)
        for colluders in range(floor - 1)
        if 2 * floor > count + colluders
    ]


@pytest.mark.parametrize(("count", "floor", "colluders"), cohorts())
def test_with_the_fewest_neighbours_no_loss_down_to_the_floor_fails_a_round(
    count: int, floor: int, colluders: int
) -> None:
    """Those who are left hold together, and show enough shares of every secret."""
    near = fewest_neighbours(count, floor, colluders)
    terms = ring_of(count, near, colluders, floor)
    for left in subsets(range(count), floor):
        assert terms.holds_together(left)
        for place in range(count):
            assert len(terms.near_of(place) & left) >= terms.threshold > colluders


def next_fewer(count: int, floor: int, colluders: int) -> int:
    """The largest ring below the fewest neighbours."""
    near = fewest_neighbours(count, floor, colluders)
    return near - 2 if near % 2 == 0 else near - 1


FEWER = [one for one in cohorts() if next_fewer(*one) >= max(2, one[2] + 1)]


@pytest.mark.parametrize(("count", "floor", "colluders"), FEWER)
def test_and_with_two_fewer_some_loss_does(count: int, floor: int, colluders: int) -> None:
    fewer = next_fewer(count, floor, colluders)
    terms = ring_of(count, fewer, colluders, floor)
    assert any(
        not terms.holds_together(left)
        or any(len(terms.near_of(place) & left) < terms.threshold for place in range(count))
        for left in subsets(range(count), floor)
    )


def test_everybody_needs_as_many_shares_as_before_there_were_rings() -> None:
    assert [shares_needed(n, f, 1, n - 1) for n, f in ((4, 3), (10, 7), (200, 134))] == [2, 6, 133]
    assert fewest_neighbours(4, 3, 1) == 3
    assert fewest_neighbours(500, 450, 25) == 76


def ground(colluders: set[str], victim: int) -> tuple[int, Terms]:
    """A nonce, out of many, at which the colluders stand next to the victim on either side."""
    for nonce in range(20_000):
        terms = ring_of(9, 4, colluders=2, floor=8, nonce=nonce)
        at = terms.ring.index(victim)
        beside = {f"s{terms.ring[(at + step) % 9]:02}" for step in (1, -1)}
        if beside == colluders:
            return nonce, terms
    raise AssertionError("no such nonce was found")


def test_a_convener_that_looks_for_a_nonce_puts_colluders_where_it_wants_and_gains_nothing() -> (
    None
):
    """They hold shares of both of the victim's secrets, each one, and one more is needed.

    Whoever is gone besides, what is left is one sum or none.
    """
    colluders, victim = {"s03", "s07"}, 5
    nonce, terms = ground(colluders, victim)
    assert nonce > 0
    round_ = Round(sites=9, neighbours=4, colluders=2, floor=8)
    round_.terms = terms
    round_.collector = Collector(terms, CONVENER)
    round_.values = {name: np.array([i]) for i, name in enumerate(round_.names)}
    round_.box = dict.fromkeys(round_.names, round_.collector.invitation())
    round_.up_to("agree")
    theirs = [
        {int(name[1:]) + 1: round_.sites[name]._held[victim][which] for name in colluders}
        for which in (0, 1)
    ]
    for shares in theirs:
        assert len(shares) == 2 < terms.threshold
        assert secret_sharing.join(shares, terms.threshold) is None
    for left in subsets(range(9), 8):
        if terms.holds_together(left):
            honest = left - {int(name[1:]) for name in colluders}
            assert are_joined(terms, honest)


GONE_APART = (0, 1, 6, 7)  # places on the ring


def parted() -> tuple[Round, list[str]]:
    """Thirteen sites, of whom four go where it cuts the ring; those of one part."""
    round_ = Round(sites=13, neighbours=4, colluders=0, floor=8, threshold=1).up_to("mask")
    ring = [round_.names[place] for place in round_.terms.ring]
    round_.stage("mask", gone=[ring[at] for at in GONE_APART])
    return round_, ring[2:6]


def sum_of_part(round_: Round, part: list[str]) -> Integers:
    """The sum of some sites alone, by what the server has after the last stage."""
    revealed = [shares_in(said) for _, stage, said in round_.sent if stage == "reveal"]
    secrets: dict[int, bytes] = {}
    for place in range(len(round_.names)):
        shares = {i: one[place] for i, one in enumerate(revealed, 1) if place in one}
        if shares:  # a threshold of one: each share is the secret
            secrets[place] = secret_sharing.join(dict([shares.popitem()]), 1) or b""
    announced = encode_fields("announced", *(said for _, s, said in round_.sent if s == "join"))
    keys = keys_in(announced, round_.terms)
    width = word_type(round_.terms.bits)
    total = np.zeros(round_.terms.size, dtype=width)
    for name in part:
        place = round_.names.index(name)
        (masked,) = (
            decode_fields(m, "masked", 2)[1] for n, s, m in round_.sent if (n, s) == (name, "mask")
        )
        total += np.frombuffer(masked, dtype=width)
        take_mask(total, own_key(secrets[place], round_.terms.digest))
        for other in round_.terms.near_of(place):
            if round_.names[other] not in part:  # gone, so its mask key was revealed
                mask = X25519PrivateKey.from_private_bytes(secrets[other])
                key = pair_key(mask, keys[place][1], round_.terms, other, place)
                (take_mask if place < other else add_mask)(total, key)
    return to_signed(reduced(total, round_.terms.bits), round_.terms.bits)


def test_without_the_check_a_cut_ring_gives_the_sum_of_a_part_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the check is for: the server reads the sum of four of nine, by what it was told."""
    with monkeypatch.context() as planted:
        planted.setattr(Terms, "holds_together", lambda _terms, _left: True)
        round_, part = parted()
        round_.stage("agree")
        round_.stage("reveal")
    assert (sum_of_part(round_, part) == round_.sum_of(part)).all()


def test_with_it_no_site_says_a_word_and_none_does_at_an_earlier_stage() -> None:
    round_, _ = parted()
    for name in round_.box:
        with pytest.raises(Refused, match="too many neighbours are missing"):
            round_.sites[name].agree(round_.box[name])
    for stage in ("join", "share"):  # gone before anybody has sent numbers, or paid
        early = Round(sites=13, neighbours=4, colluders=0, floor=8, threshold=1).up_to(stage)
        early.stage(stage, gone=[early.names[early.terms.ring[at]] for at in GONE_APART])
        for name in early.box:
            act = early.sites[name].share if stage == "join" else early.sites[name].receive_shares
            with pytest.raises(Refused, match="too many neighbours are missing"):
                act(early.box[name])


KNOWN = {f"s{i:02}": public(f"s{i:02}") for i in range(9)}


@pytest.mark.parametrize(("known", "is_in"), [(0, True), (4, True), (6, False), (8, False)])
def test_a_site_joins_no_ring_of_fewer_neighbours_than_it_knows_of(known: int, is_in: bool) -> None:
    trust = Trust(public("the convener"), KNOWN, 8, 1, known)
    message = invitation(ring_of(9, 4, floor=8), CONVENER)
    if is_in:
        assert accepted(message, trust).neighbours == 4
        return
    with pytest.raises(Refused, match="protect less than this site's data card"):
        accepted(message, trust)


def test_a_site_knows_its_neighbours_as_the_server_does() -> None:
    for near in (2, 4, 6, 8):
        terms = ring_of(9, near, colluders=1, floor=9)
        assert [terms.near_of(place) for place in range(9)] == list(terms.near)
        assert all(len(one) == near for one in terms.near)
        assert all(a in terms.near[b] for a in range(9) for b in terms.near[a])
