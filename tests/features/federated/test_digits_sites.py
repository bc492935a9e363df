"""Real sites read digits as one that has all rows does: vaults, ledgers, processes of their own."""

from __future__ import annotations

import pytest

from bench import digits, digits_sites
from sfumato.app import site_demo

pytestmark = pytest.mark.slow

SPLITS = 3
RATE = 1.0  # at the bench's 8, lessons on made-up pictures swing and two of the same differ by 6


def test_four_real_sites_read_made_up_digits_as_one_that_has_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(site_demo, "START_S", 900.0)  # on a machine that does much else
    monkeypatch.setattr(digits, "python_of", lambda _: None)  # no environment is made for it
    for bench in (digits, digits_sites):
        monkeypatch.setattr(bench, "RATE", RATE)
    calm, priced = digits_sites.run(seeds=SPLITS, epsilons=(8,))
    assert {line["pictures"] for line in (calm, priced)} == {"made up"}
    assert {line["rounds of all sites"] for line in (calm, priced)} == {"240 of 240"}
    assert (calm["paid by each site"], priced["paid by each site"]) == ("900", "8")
    assert float(str(calm["4 real sites"])) > 70  # about 80
    assert abs(float(str(calm["points below"]))) < 2  # 0.0 in four splits without any noise
    assert float(str(priced["4 real sites"])) > 40  # by chance 10; about 52
    # The noise makes one lesson of the four sites differ by 1.5 (one standard deviation).
    assert abs(float(str(priced["points below"]))) < 5
