"""Real sites read digits as one that has all rows does: vaults, ledgers, processes of their own."""

from __future__ import annotations

import pytest

from bench import digits, digits_sites
from sfumato.app import site_demo

pytestmark = pytest.mark.slow

SPLITS = 3


def test_four_real_sites_read_made_up_digits_as_one_that_has_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_demo, "START_S", 900.0)  # on a machine that does much else
    monkeypatch.setattr(digits, "python_of", lambda _: None)  # no environment is made for it
    calm, priced = digits_sites.run(seeds=SPLITS, epsilons=(8,))
    assert {line["pictures"] for line in (calm, priced)} == {"made up"}
    assert {line["rounds of all sites"] for line in (calm, priced)} == {"240 of 240"}
    assert (calm["paid by each site"], priced["paid by each site"]) == ("900", "8")
    # On made-up pictures, other first weights alone make one lesson differ by 6 points (one
    # standard deviation), so three by 3.5. On real digits it is 0.3 (docs/reference/figures.md).
    assert abs(float(str(calm["points below"]))) < 12
    assert float(str(priced["4 real sites"])) > 50  # by chance 10; about 80 as a rule
    assert float(str(priced["points below"])) < 15
