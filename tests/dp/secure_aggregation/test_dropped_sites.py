"""A participant that is written down between stages says what one that lived on says."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
import pytest

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.participant import Participant
from support.secure_aggregation_rounds import Round, key_of
from support.seeded_dice import SeededDice


def resumed(play: Round, name: str, dice: RandomSource) -> Participant:
    """The same site, from what it had kept, as a new process would have it."""
    anew = Participant(name, key_of(name), play.trust, dice, set())
    anew.resume(play.sites[name].serialise())
    return anew


def the_dice(play: Round) -> dict[str, SeededDice]:
    found = {n: SeededDice(int.from_bytes(sha256(n.encode()).digest()[:4], "little"))
             for n in play.names}  # fmt: skip
    for name, dice in found.items():
        play.sites[name] = Participant(name, key_of(name), play.trust, dice, set())
    return found


@pytest.mark.parametrize("terms", [{}, {"sites": 9, "neighbours": 4, "floor": 7, "threshold": 2}])
def test_a_site_written_down_between_all_stages_says_the_same(terms: dict[str, int]) -> None:
    lived, kept = Round(**terms), Round(**terms)
    the_dice(lived)
    dice = the_dice(kept)
    gone = {"s01": "mask"}
    for stage in ("join", "share", "mask", "agree", "reveal"):
        absent = [n for n, s in gone.items() if s == stage]
        lived.stage(stage, absent)
        kept.stage(stage, absent)
        if stage != "reveal":
            kept.sites = {name: resumed(kept, name, dice[name]) for name in kept.names}
    assert kept.sent == lived.sent
    left = [name for name in kept.names if name != "s01"]
    assert np.array_equal(kept.collector.total(), kept.sum_of(left))


def test_what_is_kept_after_a_refusal_holds_no_secret() -> None:
    play = Round().up_to("agree")
    site = play.sites["s00"]
    secrets = [site._seed, site._mask_secret, *(x for both in site._held.values() for x in both)]
    assert all(secret in site.serialise() for secret in secrets)
    with pytest.raises(Refused):
        site.agree(b"nonsense")
    assert not any(secret in site.serialise() for secret in secrets)
    anew = resumed(play, "s00", SeededDice(1))
    with pytest.raises(Refused, match="at another stage of the round: 'over'"):
        anew.agree(play.box["s00"])


def test_a_site_goes_on_only_where_nothing_was_begun() -> None:
    play = Round().up_to("share")
    with pytest.raises(Refused, match="cannot resume"):
        play.sites["s00"].resume(play.sites["s01"].serialise())


def test_a_site_of_another_name_cannot_go_on_from_it() -> None:
    play = Round().up_to("share")
    other = Participant("elsewhere", key_of("elsewhere"), play.trust, SeededDice(1), set())
    with pytest.raises(Refused, match="not in the cohort"):
        other.resume(play.sites["s00"].serialise())
