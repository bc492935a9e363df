"""A refusal says what was refused, why and what to do next, wherever it is shown."""

from __future__ import annotations

import inspect

from sfumato.dp.refusal import Refused
from sfumato.vault.card.data_card import Card, read_card


def read_one() -> Card:
    return read_card("clinic", {})  # refused a few frames further down


def test_a_notebook_shows_the_callers_line_and_no_frame_of_ours() -> None:
    refused = None
    try:
        read_one()
    except Refused as found:
        refused = found
    assert refused is not None
    line = inspect.getsourcelines(read_one)[1] + 1
    assert refused._render_traceback_() == [
        f"Refused ({refused.code}), line {line}: {refused.cause}",
        f"  {refused.next_step}",
    ]
