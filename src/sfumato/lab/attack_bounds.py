"""Tabulate every attack's success against sfumato's releases, with the theoretical upper bounds.

The intervals hold together (Bonferroni): the whole table is wrong once in a thousand times, however
many rows it has. A row whose lower end is above its bound shows that a release breaks its promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfumato.client.ask_terms import Json
from sfumato.client.text_tables import table_text
from sfumato.dp.refusal import Refused
from sfumato.lab.attack import Attack
from sfumato.lab.attack_report import Report, SuccessRate
from sfumato.lab.attacks import attacks
from sfumato.lab.success_rate_bounds import least

EPSILONS: Final = "0.1,0.3,1,3,10,30"
CONFIDENCE: Final = 0.999
SEED: Final = 20261121
# Options that shorten an attack on unprotected releases, which the table leaves out.
SHORT: Final[Mapping[str, Mapping[str, str]]] = {"ratings": {"people": "2000", "films": "200"}}
COLUMNS: Final = ("attack", "against", "tries", "right", "at least", "at most, by theory")


@dataclass(frozen=True)
class Row:
    """One attack's success rate against one of sfumato's releases."""

    attack: str
    success: SuccessRate


@dataclass(frozen=True)
class Bounds:
    """A table of all attacks' success rates against sfumato's releases, with bounds by theory."""

    rows: tuple[Row, ...]
    confidence: float = CONFIDENCE

    def least(self, row: Row) -> float:
        """Return the lower confidence bound of a row's rate, to compare it with theory.

        All rows' lower bounds hold together (Bonferroni).
        """
        miss = (1 - self.confidence) / len(self.rows)
        return least(row.success.hits, row.success.tries, miss)

    @property
    def broken(self) -> tuple[Row, ...]:
        """Return the rows whose rate is significantly above its theoretical bound."""
        return tuple(row for row in self.rows if self.least(row) > _bound(row))

    @property
    def finding(self) -> str:
        """Return a sentence that says whether an attack is right more often than theory allows."""
        sure = f"at {100 * self.confidence:g} % for all {len(self.rows)} rows together"
        if not self.broken:
            return f"No attack is right more often than theory allows ({sure})."
        names = ", ".join(f"{row.attack}: {row.success.against}" for row in self.broken)
        return f"ATTACKS THAT ARE RIGHT MORE OFTEN THAN THEORY ALLOWS ({sure}): {names}."

    @property
    def table(self) -> str:
        """Return all success rates and their theoretical bounds as a text table."""
        return "\n".join(table_text(COLUMNS, tuple(self._cells(row) for row in self.rows)))

    @property
    def page(self) -> str:
        """Return the table of success rates as a Markdown page of the docs."""
        head = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}"
        rows = "\n".join(f"| {' | '.join(self._cells(row))} |" for row in self.rows)
        return f"{PAGE}\n**{self.finding}**\n\n{head}\n{rows}\n"

    def save(self, path: str | Path) -> Path:
        """Write the table as a Markdown page; refuse a path that does not end in .md."""
        path = Path(path)
        if path.suffix.lower() != ".md":
            raise Refused(
                "not-in-language",
                "The table of all attacks can be written only as a Markdown file.",
                "Name a file that ends in .md.",
            )
        path.write_text(self.page, "utf-8")
        return path

    def as_json(self) -> Json:
        """Return the success rates, their theoretical bounds and the outcome as JSON."""
        rows: list[Json] = [
            {
                "attack": row.attack, "against": row.success.against,
                "epsilon": row.success.epsilon, "hits": row.success.hits,
                "tries": row.success.tries, "least": self.least(row), "bound": _bound(row),
            }
            for row in self.rows
        ]  # fmt: skip
        return {"confidence": self.confidence, "finding": self.finding, "rows": rows}

    def _cells(self, row: Row) -> tuple[str, ...]:
        one = row.success
        shares = (one.rate, self.least(row), _bound(row))
        told = f"{one.against} ({one.note})" if one.note else one.against
        return (row.attack, told, f"{one.tries:,}", *(f"{100 * share:.2f} %" for share in shares))


PAGE: Final = f"""# Every attack against our releases

The attacks of the privacy lab try to learn about single people from sfumato's own releases. The
table says how often each attacker was right, and how often differential privacy allows it. The
command `sfumato attack --all --seed {SEED} --save docs/reference/lab-bounds.md` made this page. To
run one attack, use `sfumato attack NAME`.

The columns of the table of attacks mean this:
- *right*: how often the attacker was right.
- *at least*: the lower end of the exact confidence interval of *right* (Clopper and Pearson). All
  rows share the chance of an error (Bonferroni).
- *at most, by theory*: how often an attacker can be right if (epsilon, delta) holds.

Whom the bound in the column *at most, by theory* covers depends on the attack:
- If the attacker guesses one of two equally likely truths, it holds for every attacker, whatever
  they know.
- If there is more to guess (`loo`, `synthetic`, `attribute` with the village known), it holds for
  this attacker. It is e^epsilon times their success without the person's row. Attackers who know
  the answer anyway are right more often.
- If some strangers are wrongly identified too, it holds for every attacker who wrongly identifies
  no more of them.

If an attack is far below its bound, the attack may be weak. The test
`tests/lab/test_attack_bounds.py` checks the rows of the table.
"""


def all_against_ours(
    *, runs: int | None = None, seed: int | None = None, epsilons: str = EPSILONS
) -> Bounds:
    """Run every attack against sfumato's releases, and return the success rates.

    Many runs take minutes.
    """
    rows = (row for one in attacks() for row in _rows(one, runs, seed, epsilons))
    return Bounds(tuple(rows))


def _rows(attack: Attack, runs: int | None, seed: int | None, epsilons: str) -> Iterator[Row]:
    options = dict(SHORT.get(attack.name, {}))
    if "epsilons" in attack.options:
        options["epsilons"] = epsilons
    for success in _bounded(attack.report(runs=runs, seed=seed, **options)):
        yield Row(attack.name, success)


def _bounded(report: Report) -> Iterator[SuccessRate]:
    yield from (one for one in report.successes if one.bound is not None)
    for other in report.beside:
        yield from _bounded(other)


def _bound(row: Row) -> float:
    return 1.0 if row.success.bound is None else row.success.bound
