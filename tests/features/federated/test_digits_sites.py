"""Real sites read digits as one that has all rows does: vaults, ledgers, processes of their own."""

from __future__ import annotations

import pytest

from bench import digits, digits_sites
from sfumato.app import site_demo

pytestmark = pytest.mark.slow


def test_four_real_sites_read_made_up_digits_as_one_that_has_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_demo, "START_S", 900.0)  # on a machine that does much else
    monkeypatch.setattr(digits, "python_of", lambda _: None)  # no environment is made for it
    calm, priced = digits_sites.run(seeds=1, epsilons=(8,))
    assert {line["pictures"] for line in (calm, priced)} == {"made up"}
    assert {line["rounds of all sites"] for line in (calm, priced)} == {"80 of 80"}
    assert (calm["paid by each site"], priced["paid by each site"]) == ("900", "8")
    assert abs(float(str(calm["points below"]))) < 3  # one split of 450 pictures to look at
    assert float(str(priced["4 real sites"])) > 50  # by chance 10; about 80 as a rule
    assert float(str(priced["points below"])) < 15
