"""One secure sum: right whoever drops out, and nothing but the sum."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sfumato.dp.refusal import Bug, Refused
from sfumato.dp.secure_aggregation import participant
from sfumato.dp.secure_aggregation.masks import Words, add_mask, to_signed, word_type
from sfumato.dp.secure_aggregation.message_encoding import decode_fields
from support.secure_aggregation_rounds import STAGES, Integers, Round

WIDTHS = (8, 20, 32, 33, 63, 64)


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_sum_is_exact(bits: int) -> None:
    round_ = Round(bits=bits, size=3)
    round_.values = {name: np.array([-3, 0, 5 - i]) for i, name in enumerate(round_.names)}
    assert (round_.play() == round_.sum_of(round_.names)).all()
    assert round_.collector.survivors == tuple(round_.names)


@pytest.mark.parametrize("bits", [32, 64])
def test_the_largest_updates_that_are_let_in_add_up(bits: int) -> None:
    round_ = Round(bits=bits, size=2)
    most = (2 ** (bits - 1) - 1) // 5
    round_.values = dict.fromkeys(round_.names, np.array([most, -most]))
    assert round_.play().tolist() == [5 * most, -5 * most]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("gone", [f"s{i:02}" for i in range(6)])
def test_each_site_in_turn_can_drop_out_at_every_stage(gone: str, stage: str) -> None:
    round_ = Round(sites=6, floor=4)
    total = round_.play({gone: stage})
    heard = STAGES.index(stage) > STAGES.index("mask")  # its update had come already
    left = round_.names if heard else [name for name in round_.names if name != gone]
    assert (total == round_.sum_of(left)).all()
    assert round_.collector.survivors == tuple(left)


def test_sites_that_drop_out_at_different_stages_leave_the_sum_of_the_others() -> None:
    round_ = Round(sites=9, floor=5)
    total = round_.play({"s00": "share", "s04": "mask", "s05": "mask", "s08": "reveal"})
    assert (total == round_.sum_of(["s01", "s02", "s03", "s06", "s07", "s08"])).all()


@pytest.mark.parametrize("gone", [{}, {"s03": "mask"}, {"s03": "mask", "s11": "mask"}])
def test_neighbourhoods_are_enough_for_many_sites(gone: dict[str, str]) -> None:
    round_ = Round(sites=24, neighbours=8, colluders=2, floor=14)
    total = round_.play(gone)
    assert (total == round_.sum_of([n for n in round_.names if n not in gone])).all()
    assert all(len(near) == 8 for near in round_.terms.near)
    assert all(a in round_.terms.near[b] for a in range(24) for b in round_.terms.near[a])


@pytest.mark.parametrize("stage", STAGES)
def test_below_the_floor_there_is_no_sum_not_even_of_the_rest(stage: str) -> None:
    round_ = Round(sites=5, floor=4).up_to(stage)
    with pytest.raises(Refused, match="sum-too-few"):
        round_.stage(stage, gone=["s00", "s01"])
    with pytest.raises(Bug):
        round_.collector.total()
    with pytest.raises(Refused, match="over"):
        round_.collector.take(b"")


def test_fifty_cohorts_one_below_the_floor_abort_fifty_times() -> None:
    aborted = 0
    for _ in range(50):
        try:
            Round(sites=4, floor=4, size=1).play({"s02": "mask"})
        except Refused as refusal:
            aborted += refusal.code == "sum-too-few"
    assert aborted == 50


def masked_words(round_: Round) -> list[Integers]:
    found = [
        decode_fields(said, "masked", 2)[1] for _, stage, said in round_.sent if stage == "mask"
    ]
    width = word_type(round_.terms.bits)
    return [np.frombuffer(words, dtype=width).astype(np.float64) for words in found]


def uniform_p(words: Integers, bits: int) -> float:
    """Chi-square of 64 equal bins of 0 .. 2**bits, and of the lowest six bits."""
    high = np.bincount((words // 2.0 ** (bits - 6)).astype(int), minlength=64)
    low = np.bincount(np.mod(words, 64).astype(int), minlength=64)
    return float(min(stats.chisquare(part).pvalue for part in (high, low)))


@pytest.mark.parametrize("bits", [20, 32, 48])
def test_what_the_server_sees_of_a_site_is_uniform(bits: int) -> None:
    round_ = Round(sites=4, size=40_000, bits=bits)
    round_.play()
    for words in masked_words(round_):
        assert uniform_p(words, bits) > 1e-5


def test_without_masks_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_mask(words: Words, key: bytes) -> None:
        """Leave the words as they are."""

    monkeypatch.setattr(participant, "add_mask", no_mask)
    monkeypatch.setattr(participant, "take_mask", no_mask)
    round_ = Round(sites=4, size=40_000).up_to("agree")
    for words in masked_words(round_):
        assert uniform_p(words, 32) < 1e-100


def test_the_masked_updates_of_two_rounds_have_nothing_in_common() -> None:
    """The same values under other keys: differences are uniform too."""
    one, two = Round(sites=3, size=40_000), Round(sites=3, size=40_000)
    two.sites["s00"] = two.site("s00")
    two.sites["s00"]._dice.draw(1)  # so that it draws other keys
    one.play()
    two.play()
    for first, second in zip(masked_words(one), masked_words(two), strict=True):
        assert uniform_p(np.mod(first - second, 2.0**32), 32) > 1e-5


def test_a_sum_without_one_sites_mask_is_uniform_too() -> None:
    """All masked updates but one, added up: the missing one's masks hide the others."""
    round_ = Round(sites=4, size=40_000)
    round_.play()
    words = masked_words(round_)
    for missing in range(4):
        part = np.mod(sum(w for i, w in enumerate(words) if i != missing), 2.0**32)
        assert uniform_p(np.asarray(part), 32) > 1e-5


def test_a_mask_does_not_depend_on_where_it_is_cut() -> None:
    long, short = np.zeros(100_000, dtype="<u4"), np.zeros(70_000, dtype="<u4")
    for words in (long, short):
        add_mask(words, b"k" * 32)
    assert (long[:70_000] == short).all()
    assert len(np.unique(long)) > 99_000


@pytest.mark.parametrize("bits", WIDTHS)
def test_words_are_the_integers_closest_to_zero(bits: int) -> None:
    top = 2 ** (bits - 1)
    words = np.array([0, 1, top - 1, top, 2 * top - 1], dtype=word_type(bits))
    assert to_signed(words, bits).tolist() == [0, 1, top - 1, -top, -1]
