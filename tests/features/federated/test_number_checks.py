"""Numbers that the asker of a federation types: read as written, or refused at once."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from sfumato.dp.refusal import Refused
from sfumato.features.federated.number_checks import number


@pytest.mark.parametrize(
    "said", ["1e-999999999", Decimal("1e-99999999"), "0e-99999999", "1e99999999", "sNaN", "", b"1"]
)
def test_what_cannot_be_written_out_is_no_number(said: object) -> None:
    with pytest.raises(Refused, match="rate must be a number from 0 to 1e\\+06"):
        number("rate", said, 0, 1e6)


@pytest.mark.parametrize(("said", "read"), [(0, 0), ("0.1", Fraction(1, 10)), (1e-300, None)])
def test_a_number_is_read_as_it_is_written(said: object, read: object) -> None:
    assert number("rate", said, 0, 1e6) == (Fraction(str(said)) if read is None else read)
