"""What a card makes of convolutions and tables, and how lessons with and without are spelled."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

import pytest

from sfumato.dp.learning.input_layers import Table
from sfumato.dp.learning.training_task import read_training_task
from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.round_terms import Member
from sfumato.engines.duckdb.training import learn_header, network_of, read_learn
from sfumato.features.federated.agreement import Agreement
from sfumato.features.federated.training_plan import TrainPlan, plan_training
from sfumato.vault.card.data_card import read_card

MEMBERS = tuple(Member(name, name.encode() * 16) for name in ("ab", "cd", "ef", "gh"))
AGREEMENT = Agreement("clinics", bytes(32), MEMBERS, 3, 1)
INKS = {f"p{n}": {"type": "integer", "lower": 0, "upper": 16} for n in range(16)}
COLUMNS: dict[str, Any] = {
    **INKS,
    "height": {"type": "number", "lower": 0, "upper": 3, "step": Fraction(1, 100)},
    "weight": {"type": "number", "lower": 0, "upper": 300, "step": Fraction(1, 100)},
    "smoker": {"type": "boolean"},
    "town": {"type": "text", "keys": ["a", "b", "c"]},
    "note": {"type": "text"},
    "free": {"type": "number"},
}
CONV = {"channels": 2, "kernel": 3, "padding": 1, "pool": 2}
SHAPE: dict[str, Any] = {
    "name": "ab" * 32, "features": [*INKS, "height", "smoker"], "target": "smoker",
    "hidden": [5], "rounds": 10, "clip": 1,
}  # fmt: skip
FRONT: dict[str, Any] = {"image": [1, 4, 4], "conv": [CONV], "embed": {"smoker": 2, "height": 3}}


def plan(**changed: Any) -> TrainPlan:
    budget = {"epsilon": Fraction(10), "delta": Fraction(1, 1000)}
    shape = {"budget": budget, "columns": COLUMNS, "unit": "who", "max_rows": 4000}
    lesson = read_training_task({**SHAPE, **changed})
    card = read_card("people", shape)
    return plan_training(card, lesson, AGREEMENT, Fraction(9), Fraction(1, 10**6))


def test_a_card_says_how_many_entries_a_table_has() -> None:
    embed = {"town": 2, "height": 3}
    features = [*INKS, "height", "town", "smoker"]
    made = plan(**{**FRONT, "features": features, "embed": embed})
    front = made.network.front
    assert front is not None
    assert front.tables == (Table(16, 301, 3), Table(17, 3, 2))
    assert made.features[17].column.startswith("k")  # of a column with keys, which of them it is
    assert made.network.widths == (2 * 2 * 2 + 1 + 3 + 2, 5, 2)
    assert made.size == 2 * 10 + 301 * 3 + 3 * 2 + (14 * 5 + 5) + (5 * 2 + 2)


def test_an_order_travels_to_a_worker_with_its_front() -> None:
    made = plan(**FRONT)
    order = made.order("t", bytes(4 * made.size))
    again = read_learn(json.loads(json.dumps(learn_header(order, "t"))) | {"table": "t"})
    assert again == order
    assert network_of(again) == made.network
    plain = plan().order("t", bytes(4))
    assert read_learn(learn_header(plain, "t")).front is None


def test_a_lesson_without_a_front_is_spelled_as_it_always_was() -> None:
    said = json.dumps(
        read_training_task({**SHAPE, "features": ["height"]}).as_json(), sort_keys=True
    )
    assert hashlib.sha256(said.encode()).hexdigest() == (
        "081093e69ae72dc0d8c36d2525c9fe622e1267a7cecb3c229dfbe435959c6e1d"
    )
    assert plan(features=["height", "smoker"]).about == (
        "training-at-sites/1 5489f8c6b6c26bfac9907bb2edb02afcbb8c197f05c04acf0a23433b6b69604e"
    )


def test_every_word_of_a_front_is_of_what_the_sites_compare() -> None:
    others: list[dict[str, Any]] = [
        {}, FRONT, {"embed": FRONT["embed"]}, {"image": [1, 4, 4], "conv": [CONV]},
        {**FRONT, "embed": {"smoker": 3, "height": 3}}, {**FRONT, "image": [1, 2, 8]},
        {**FRONT, "conv": [{**CONV, "channels": 1}]}, {**FRONT, "conv": [{**CONV, "pool": 1}]},
        {**FRONT, "conv": [{**CONV, "stride": 2}]}, {**FRONT, "conv": [{**CONV, "padding": 2}]},
    ]  # fmt: skip
    assert len({plan(**one).about for one in others}) == len(others)


def test_a_front_is_spelled_in_full_whatever_was_left_out() -> None:
    lesson = plan(**FRONT).lesson
    assert lesson.as_json()["conv"] == [{**CONV, "stride": 1}]
    said = lesson.as_json()
    again = read_training_task(
        {**SHAPE, **{word: said[word] for word in ("image", "conv", "embed")}}
    )
    assert again == lesson
    full = plan(**{**FRONT, "conv": [{**CONV, "stride": 1}]})
    assert full.about == plan(**FRONT).about


def test_a_row_that_is_convolved_has_more_time_by_the_order_alone() -> None:
    plain, made = plan(), plan(image=[1, 4, 4], conv=[{**CONV, "channels": 64, "pool": 4}])
    slow, quick = (one.order("t", bytes(4 * one.size)) for one in (made, plain))
    assert slow.row_s > 5 * quick.row_s


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"features": ["town"], "embed": {"town": 2}}, None),
        ({"embed": {"smoker": 2}}, None),
        ({"features": ["weight"], "embed": {"weight": 2}}, "bad-request"),  # 30,001 entries
        ({"features": ["note"], "embed": {"note": 2}}, "type-mismatch"),
        ({"features": ["free"], "embed": {"free": 2}}, "no-bounds"),
        ({"embed": {"weight": 2}}, "bad-request"),
        ({"embed": {"p0": 2}, "image": [1, 4, 4], "conv": [CONV]}, "bad-request"),
        ({"embed": {"town": 0}}, "bad-request"),
        ({"embed": ["town"]}, "bad-request"),
        ({"embed": {}}, "bad-request"),
        ({"image": [1, 4, 4]}, "bad-request"),
        ({"conv": [CONV]}, "bad-request"),
        ({"image": [1, 4, 4], "conv": []}, "bad-request"),
        ({"image": [4, 4], "conv": [CONV]}, "bad-request"),
        ({"image": [1, 5, 5], "conv": [CONV]}, "bad-request"),
        ({"image": [1, 4, True], "conv": [CONV]}, "bad-request"),
        ({"image": [1, 4, 4], "conv": [{**CONV, "dilation": 2}]}, "bad-request"),
        ({"image": [1, 4, 4], "conv": [{**CONV, "padding": 3}]}, "bad-request"),
        ({"image": [1, 4, 4], "conv": [{"channels": 2}]}, "bad-request"),
        ({"image": [1, 4, 4], "conv": [{**CONV, "kernel": 8}]}, "bad-request"),
    ],
)  # fmt: skip
def test_fronts_that_fit_no_columns_are_refused(change: dict[str, Any], code: str | None) -> None:
    if code is None:
        assert plan(**change).size > 0
        return
    with pytest.raises(Refused, match=f"^{code}:"):
        plan(**change)


def test_people_of_so_many_rows_that_a_sum_over_places_could_round_are_refused() -> None:
    """2**16 products of 2**37 are what a double counts: 16 places, so 4,096 rows; not 25."""
    own: dict[str, Any] = {"local": 1, "rate": 1, "each": "person", "image": [1, 4, 4]}
    flat = {"channels": 2, "kernel": 1}
    assert plan(**own, conv=[flat], max_rows=3000).size > 0
    with pytest.raises(
        Refused, match=r"bad-request.*positions of a kernel \(36\) may be at most 65,536"
    ):
        plan(**own, conv=[{**CONV, "padding": 2}], max_rows=3000)
    assert plan(**own, conv=[{**CONV, "padding": 2}], max_rows=1820).size > 0
