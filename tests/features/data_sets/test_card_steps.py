"""The three steps that make a card: defaults, checks, what a budget means, and previews."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from sfumato.dp.mechanisms import laplace
from sfumato.features.data_sets.card_preview import (
    HIDDEN,
    PERSON,
    UNBOUNDED,
    UNLISTED,
    column_previews,
)
from sfumato.features.data_sets.card_proposal import proposed_card
from sfumato.features.data_sets.card_steps import (
    LOWER,
    STEPS,
    bound_fault,
    budget_meaning,
    card_fault,
    card_of,
    column_questions,
    faults,
    proposed_answers,
    questions_of,
    unit_meaning,
    unit_reason,
)
from sfumato.features.data_sets.missing_markers import (
    MarkerQuestion,
    is_missing,
    marker_questions,
    question_text,
    with_marker,
)
from sfumato.vault.engine_port import Described

COLUMNS = (
    ("patient_no", "text"), ("age", "integer"), ("weight", "number"), ("zip", "text"),
    ("seen on", "date"), ("at", "timestamp"), ("smokes", "boolean"), ("name", "text"),
)  # fmt: skip


def answers(found: Described | None = None, **typed: str) -> dict[str, str]:
    described = found or Described(COLUMNS)
    made = proposed_answers({"columns": [], "card": proposed_card("clinic", described)})
    return {**made, **{name.replace("_of_", "-"): text for name, text in typed.items()}}


def test_the_defaults_make_a_valid_card_without_bounds_and_without_lists() -> None:
    card: Any = card_of(answers())
    assert card_fault(answers()) is None
    assert card["unit"] == "patient_no"
    assert card["budget"] == {"epsilon": Decimal(1), "delta": Decimal(0)}
    assert card["columns"]["age"] == {"type": "integer"}
    assert card["columns"]["zip"] == {"type": "text"}
    assert card["columns"]["name"] == card["columns"]["patient_no"] == {"hidden": True}


def test_whoever_is_chosen_as_the_person_is_hidden() -> None:
    card: Any = card_of(answers(unit="zip", c3_of_keys="a, b"))
    assert card["columns"]["zip"] == {"hidden": True}
    assert card["unit"] == "zip"


def test_a_row_has_no_rows_of_its_own() -> None:
    typed = answers(unit="row", max_rows="7")
    assert "max_rows" not in card_of(typed)
    names = [question.name for question in questions_of(STEPS[1], typed)]
    assert names == ["size", "epsilon", "delta"]
    assert "any one row" in unit_meaning(typed)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["patient_no", "age"], "patient_no is the only column"),
        (["patient_no", "subject", "age"], "patient_no, subject"),
        (["age", "zip"], "No column"),
    ],
)
def test_the_reason_for_a_unit_is_said(names: list[str], said: str) -> None:
    found = Described(tuple((name, "text") for name in names))
    assert said in unit_reason(answers(found))


def test_a_wrong_answer_is_named_with_its_step() -> None:
    typed = answers(
        name="2 fast", unit="nobody", people="", epsilon="many", delta="2", size="-1",
        max_rows="0", average_sites="x", c1_of_lower="10", c1_of_upper="0", c2_of_lower="1",
        encoding="x", decimal=";",
    )  # fmt: skip
    assert set(faults(typed, "who")) == {"name", "unit", "people"}
    found = faults(typed, "much")
    assert set(found) == {"epsilon", "delta", "size", "max_rows", "average_sites"}
    assert set(faults(typed, "columns")) == {"c1", "c2", "encoding", "decimal"}
    assert all(faults(answers(), step.name) == {} for step in STEPS)
    assert card_fault(typed) is not None


def test_a_typed_bound_fits_its_type() -> None:
    assert bound_fault(LOWER, "integer", "x")
    assert bound_fault(LOWER, "date", "1.2.2024")
    assert bound_fault(LOWER, "date", "2024-02-01") == bound_fault(LOWER, "number", "-0.5") == ""


@pytest.mark.parametrize("epsilon", ["0.5", "1", "3", "20"])
@pytest.mark.parametrize(("rows", "groups"), [(1, 1), (3, 2)])
def test_the_error_that_explains_a_budget_is_that_of_the_noise(
    epsilon: str, rows: int, groups: int
) -> None:
    typed = answers(epsilon=epsilon, max_rows=str(rows), max_groups=str(groups), size="100000")
    lines = budget_meaning(typed)
    each = Fraction(epsilon) / 10
    one = laplace.interval(1 / each, Fraction(95, 100))
    assert f"off by at most {one:,} in 95 of 100" in lines[1]
    if rows * groups > 1:
        many = laplace.interval(rows * groups / each, Fraction(95, 100))
        assert f"off by at most {many:,}, because" in lines[2]
    else:
        assert len(lines) == 2


def test_a_budget_says_how_sure_somebody_can_become() -> None:
    assert "at most 74 % sure after all answers together." in budget_meaning(answers())[0]
    assert "except with chance 1e-6" in budget_meaning(answers(delta="1e-6"))[0]
    assert "6 % of 500 people" in budget_meaning(answers(size="500"))[1]
    assert budget_meaning(answers(epsilon="many")) == []


def test_a_preview_shows_what_the_card_says_and_nothing_else() -> None:
    typed = answers(
        c1_of_lower="0", c1_of_upper="110", c2_of_lower="30", c2_of_upper="200", c2_of_step="0.1",
        c3_of_keys="10001, 10002", c4_of_lower="2024-01-01", c4_of_upper="2024-12-31",
    )  # fmt: skip
    person, age, weight, area, day, _, smokes, name = column_previews(typed)
    assert (person.note, name.note) == (PERSON, HIDDEN)
    assert (age.values, age.examples) == ("0 to 110", ("27", "55", "82"))
    assert (weight.values, weight.examples[0]) == ("30 to 200, in steps of 0.1", "72.5")
    assert (area.values, area.examples) == ("2: 10001, 10002", ("10001", "10002"))
    assert (day.values, day.examples[0]) == ("2024-01-01 to 2024-12-31", "2024-04-01")
    assert smokes.examples == ("true", "false", "true")


def test_a_preview_says_what_is_missing_for_sums_and_groups() -> None:
    _, age, _, area, *_ = column_previews(answers())
    assert age.note == UNBOUNDED
    assert area.note == UNLISTED
    assert column_previews(answers(c1_of_lower="9"))[1].fault.startswith("Column 'age' has one")


def test_the_marks_of_one_column_are_not_those_of_another() -> None:
    formats = {"weight": {"decimal": ","}, "price": {"decimal": "."}}
    columns = (("weight", "number"), ("price", "number"), ("plain", "number"))
    typed = answers(Described(columns, formats, "cp1252"), unit="row")
    card: Any = card_of(typed)
    assert (card["decimal"], card["encoding"]) == (",", "cp1252")
    assert card["columns"]["weight"] == {"type": "number"}
    assert card["columns"]["price"]["decimal"] == card["columns"]["plain"]["decimal"] == "."
    assert card_fault(typed) is None


def test_who_has_points_before_three_digits_is_asked_what_they_mean() -> None:
    found = Described((("price", "number"),), {"price": {"decimal": "."}})
    typed = answers(found, unit="row")
    asked = [question.name for question in column_questions(typed, 0, "number")]
    assert asked == ["point", "lower", "upper", "step"]
    card: Any = card_of({**typed, "c0-point": "thousands"})
    assert card["columns"]["price"] == {"type": "number", "decimal": ",", "thousands": "."}
    assert [q.name for q in column_questions(answers(), 2, "number")] == ["lower", "upper", "step"]


def with_markers(**found: dict[str, int]) -> dict[str, str]:
    columns = [{"name": name, "type": "", "markers": words} for name, words in found.items()]
    card = proposed_card("clinic", Described(COLUMNS))
    return proposed_answers({"columns": columns, "card": card})


def test_a_word_is_missing_in_numbers_and_a_value_in_texts_until_the_owner_says_so() -> None:
    typed = with_markers(age={"unknown": 12, "k. A.": 1}, zip={"unknown": 2}, name={"-": 3})
    card: Any = card_of(typed)
    assert card["columns"]["age"] == {"type": "integer", "nulls": ["unknown", "k. A."]}
    assert card["columns"]["zip"] == {"type": "text"}
    asked = marker_questions(typed, len(COLUMNS))
    assert [(one.word, one.is_of_texts) for one in asked] == [
        ("unknown", False), ("unknown", True), ("k. A.", False),
    ]  # fmt: skip
    assert [is_missing(typed, one) for one in asked] == [True, False, True]
    said = with_marker(with_marker(typed, asked[0], missing=False), asked[1], missing=True)
    card = card_of(said)
    assert card["columns"]["age"]["nulls"] == ["k. A."]
    assert card["columns"]["zip"]["nulls"] == ["unknown"]
    assert column_previews(said)[1].found == (
        "Among the first 1,000 rows: “unknown” 12 times (a value), “k. A.” once (missing)."
    )
    assert card_fault(said) is None
    assert "odd" not in str(card)


def test_a_question_about_odd_cells_names_a_few_columns() -> None:
    cells = tuple((number, 2) for number in range(7))
    text = question_text(MarkerQuestion("-", is_of_texts=False, cells=cells), list("abcdefg"))
    assert "14 cells say “-”: 2 of a, 2 of b, 2 of c, 2 of d, 2 of e and others of 2 more" in text


def test_the_words_of_yes_and_no_are_proposed_shown_and_changed() -> None:
    words = {"smokes": {"true": ["ja", "j"], "false": ["nein", "n"]}}
    typed = answers(Described(COLUMNS, words))
    card: Any = card_of(typed)
    assert card["columns"]["smokes"] == {"type": "boolean", **words["smokes"]}
    assert column_previews(typed)[6].note == "Read as true: ja, j. As false: nein, n."
    assert [q.name for q in column_questions(typed, 6, "boolean")] == ["true", "false"]
    changed: Any = card_of({**typed, "c6-true": "JA ", "c6-false": ""})
    assert changed["columns"]["smokes"] == {"type": "boolean", "true": ["JA"]}
    assert set(faults({**typed, "c6-false": "ja"}, "columns")) == {"c6"}
    hidden: Any = card_of({**typed, "c6-type": "text"})
    assert hidden["columns"]["smokes"] == {"type": "text"}
