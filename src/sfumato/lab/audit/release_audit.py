"""Audit grouped questions end to end: through a vault with canaries and the whole release.

Each question is one release over many public keys. Its twin is a positive control: the same
question at several times the price, tested against the price of one. The audit has to catch it.
out_of_bounds_canaries.py, regression_audit.py and stream_audit.py audit people beyond the bounds,
fits and streams. canaries.py has what all of these share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final

from sfumato.dp.accounting.zcdp_conversion import rho_within
from sfumato.lab.audit.auditor import ALPHA, Audited, Random
from sfumato.lab.audit.canaries import (
    AuditedQuestion,
    Canaries,
    CanaryFlips,
    CanaryReleases,
    Table,
    Vault,
    between,
    by_key,
    listed,
)
from sfumato.lab.audit.one_run_audit import ENOUGH, OneRunClaim, coins, judged
from sfumato.lab.audit.privacy_claim import Claim, RhoClaim

KEYS: Final = 2 * ENOUGH
NAME: Final = "canaries"  # a data set with one possible canary per key, and nobody else
COMPANY: Final = "company"  # the same data set with two more people per key
# the same data set, with enough people per private key to be near the threshold
CROWDS: Final = "crowds"
# People per private key, for half of the keys each: near the threshold at the twin's price, and
# at the price.
ALWAYS: Final = (5, 10)


@dataclass(frozen=True)
class Question:
    """A grouped question to audit, and its claimed price; the first column is the key."""

    name: str
    sql: str
    verbs: tuple[str, ...]  # the modules of query/aggregates that it uses
    data_set: str = NAME
    epsilon: int = 1
    delta: str = "0"
    # the twin's factor; it is larger where a canary shows at most half of the price
    factor: int = 2
    is_short: bool = False  # True: the short audit asks the question, too
    # True: the noise is Gaussian, and the claim is the rho of epsilon and delta
    is_rho: bool = False

    @property
    def claim(self) -> Claim:
        """Return the audited claim; a claim of rho assumes that each key has its own noise."""
        if self.is_rho:
            return RhoClaim(float(rho_within(Fraction(self.epsilon), Fraction(self.delta))))
        return OneRunClaim(float(self.epsilon), float(self.delta))

    def release(self, canaries: Canaries, factor: int) -> CanaryReleases:
        """Ask the question at `factor` times its price; return what is released of each key."""
        answer = canaries.vault[self.data_set].ask(
            self.sql, epsilon=factor * self.epsilon, delta=Decimal(self.delta)
        )
        found, is_in = by_key(answer.rows), canaries.is_in
        if self.data_set == CROWDS:
            found = {key: found[f"z{key}"] for key in range(len(is_in)) if f"z{key}" in found}
        return CanaryReleases(found, is_in)


def audit_question(
    question: AuditedQuestion, seen: CanaryReleases, dice: Random, *, alpha: float = ALPHA
) -> Audited:
    """Test a question's claim on what it released of the canaries.

    Keys that were not shown are outputs, too.
    """
    keys = range(len(seen.is_in))
    return judged(question.claim, seen.released, keys, seen.is_in, alpha=alpha, dice=dice)


def put_canaries(vault: Vault, folder: Path, dice: Random, *, keys: int = KEYS) -> Canaries:
    """Add three data sets with canaries to a fresh vault; a coin decides on each key's canary.

    A canary is an artificial person, whose presence the audit guesses from the release.
    """
    placed = CanaryFlips(0, coins(keys, dice))
    for name, table in ((NAME, _alone), (COMPANY, _in_company), (CROWDS, _in_crowds)):
        table(placed.here, keys).put(vault, folder, name)
    return Canaries(vault, placed.is_in, folder, dice)


def _alone(here: Sequence[int], keys: int) -> Table:
    columns = {
        "k": listed(range(keys)),
        "x": between(0, 100),
        "c": listed(("a", "b", "d"), "text"),
        "day": between(date(2026, 1, 1), date(2026, 3, 31), "date"),
    }
    rows = ((f"c{key}", key, 100, "d", "2026-01-05") for key in here)
    return Table("canaries", columns, rows, {"size": 20_000})


def _in_company(here: Sequence[int], keys: int) -> Table:
    columns = {
        "k": listed(range(keys)),
        "x": between(0, 100),
        "u": between(0, 1),
        "v": between(0, 1),
        "w": between(0, 10),
    }
    always = ((f"p{key}-{n}", key, 90, 1, 1, 10) for key in range(keys) for n in range(2))
    joining = ((f"s{key}", key, 100, 0, 0, 0) for key in here)
    return Table("canaries-in-company", columns, (*always, *joining), {"size": 50_000})


def _in_crowds(here: Sequence[int], keys: int) -> Table:
    always = (
        (f"q{key}-{n}", f"z{key}") for key in range(keys) for n in range(ALWAYS[key % len(ALWAYS)])
    )
    joining = ((f"t{key}", f"z{key}") for key in here)
    columns: dict[str, dict[str, object]] = {"z": {"type": "text"}}
    return Table("canaries-of-secret-keys", columns, (*always, *joining))


QUESTIONS: Final[tuple[Question, ...]] = (
    Question("COUNT(*)", "SELECT k, COUNT(*) FROM canaries GROUP BY k", ("count",), is_short=True),
    Question("COUNT(DISTINCT person)", "SELECT k, COUNT(DISTINCT who) FROM canaries GROUP BY k",
             ("count",)),
    Question("SUM", "SELECT k, SUM(x) FROM canaries GROUP BY k", ("sum",)),
    Question("AVG", "SELECT k, AVG(x) FROM canaries GROUP BY k", ("mean",), is_short=True),
    Question("COUNT and SUM", "SELECT k, COUNT(*), SUM(x) FROM canaries GROUP BY k",
             ("count", "sum")),
    Question("MEDIAN", "SELECT k, MEDIAN(x) FROM company GROUP BY k", ("order_statistics",), COMPANY),  # noqa: E501
    Question("MAX", "SELECT k, MAX(FLOOR(x / 10)) FROM canaries GROUP BY k", ("order_statistics",),
             is_short=True),
    Question("MODE", "SELECT k, MODE(c) FROM canaries GROUP BY k", ("order_statistics",)),
    Question("APPROX_TOP_K", "SELECT k, APPROX_TOP_K(c, 2) FROM canaries GROUP BY k", ("order_statistics",),  # noqa: E501
             epsilon=3),
    Question("BOUNDS", "SELECT k, BOUNDS(x) FROM canaries GROUP BY k", ("threshold_search",), epsilon=5),  # noqa: E501
    Question("FIRST_ABOVE", "SELECT k, FIRST_ABOVE(c, 1) FROM canaries GROUP BY k", ("threshold_search",)),  # noqa: E501
    Question("RUNNING_COUNT", "SELECT k, date_trunc('month', day) AS m, RUNNING_COUNT(*) "
             "FROM canaries GROUP BY k, m", ("running_count",)),
    Question("keys that are secret", "SELECT z, COUNT(*) FROM crowds GROUP BY z", ("count",),
             CROWDS, epsilon=3, delta="1e-7", is_short=True),
    Question("VAR_SAMP", "SELECT k, VAR_SAMP(u) FROM company GROUP BY k", ("variance", "noisy_moments"),  # noqa: E501
             COMPANY),
    Question("VAR_SAMP of eleven values", "SELECT k, VAR_SAMP(w) FROM company GROUP BY k",
             ("variance", "noisy_moments"), COMPANY),
    Question("COVAR_SAMP", "SELECT k, COVAR_SAMP(u, v) FROM company GROUP BY k",
             ("covariance", "noisy_moments"), COMPANY, epsilon=2),
    Question("six aggregates, Gaussian", "SELECT k, COUNT(*), COUNT(x), COUNT(day), COUNT(c), "
             "SUM(x), COUNT(DISTINCT who) FROM canaries GROUP BY k", ("count", "sum"),
             epsilon=3, delta="0.01", is_rho=True),
)  # fmt: skip
