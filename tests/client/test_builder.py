"""A question in the making shows what it would ask, and what comes next."""

from __future__ import annotations

from typing import Any, cast

from sfumato.client.builder import Builder

NOBODY = cast(Any, None)  # whom it would be asked of: nothing is asked here


def test_a_question_in_the_making_shows_itself_in_one_line() -> None:
    asked = Builder("town", NOBODY).group_by("zip").count(name="people").mean("salary")
    assert repr(asked) == (
        "<a question of 'town': people, avg_salary; .price(epsilon=1) or .ask(epsilon=1)>"
    )
    assert "nothing yet" in repr(Builder("town", NOBODY))
