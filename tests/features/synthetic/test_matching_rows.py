"""Rows are made up for a question as long as that is soon done; nobody pays for them."""

from __future__ import annotations

import pytest

from query.test_plan import card
from sfumato.dp.refusal import Refused
from sfumato.features.synthetic.matching_rows import RepairLimit, matching_rows
from sfumato.features.synthetic.seeded_numbers import Seeded
from sfumato.query.sql.select import read_sql

NEVER = " AND ".join(f"(pay = {place} OR free = {place})" for place in range(30))
FORMS = {
    "rows": f"SELECT COUNT(*) FROM t WHERE {NEVER}",
    "groups": f"SELECT zip, COUNT(*) FROM t WHERE {NEVER} GROUP BY zip",
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_are_not_found_soon_are_not_looked_for_any_longer(form: str) -> None:
    """Without an end to it this takes minutes, of filters that are no longer than these."""
    with pytest.raises(Refused, match="takes too long") as refused:
        matching_rows(card(), read_sql(FORMS[form], "t"), Seeded("k"))
    assert refused.value.code == "twin-not-possible"


def test_an_effort_ends_where_it_is_spent() -> None:
    effort = RepairLimit(5)
    effort.spend(5)
    with pytest.raises(Refused, match="too long"):
        effort.spend(1)


def test_rows_that_many_groups_and_a_filter_need_are_found() -> None:
    text = (
        "SELECT zip, sick, FLOOR(pay) AS f, COUNT(*) FROM t WHERE "
        + " AND ".join(f"free <> {place}" for place in range(30))
        + " GROUP BY zip, sick, FLOOR(pay)"
    )
    made = matching_rows(card(), read_sql(text, "t"), Seeded("k"))
    assert len(made.people) == 5 * 2 * 41 * 3
