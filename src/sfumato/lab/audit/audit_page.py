"""Format audits as tables for the terminal, and as the page docs/reference/audit.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from sfumato.lab.audit.audit_suite import MechanismAudit, SpecimenAudit, names
from sfumato.lab.audit.auditor import Audited
from sfumato.lab.broken.zoo import ZOO

Row = tuple[str, ...]
PLACES: Final = ("bare", "door, DuckDB", "door, PostgreSQL", "door, Spark")
HELD: Final = ("mechanism", "where", "claim", "at least", "runs", "twin", "verdict")
FOUND: Final = ("id", "specimen", "claim", "somebody", "at least", "runs", "seen in", "verdict")

_TOP: Final = """# What the auditor found

The auditor runs a mechanism many times and proves a *lower* bound: "epsilon is at least so much,
at confidence 99.99 %". No number on this page says that something is private.
[lab-audit.md](../how-to/lab-audit.md) says what the auditor can and cannot show. The command
`sfumato audit --page docs/reference/audit.md` makes this page, with one `--engine` for each further
engine.

## What ships

The auditor tests each mechanism that ships with sfumato against its claim. It also tests a *twin*:
the same mechanism with the noise of twice its epsilon, against the same claim. The auditor must
catch every twin. If it misses a twin, the audit of that mechanism shows nothing.

The columns of the table of shipped mechanisms mean this:
- **where**: `bare` calls the mechanism directly. `door` asks a question of a vault on this engine,
  so the whole release is tested.
- **at least**: the lower bound of epsilon (or rho) that the auditor proved. 0 means that it proved
  nothing.
- **runs**, for `bare`: how often the mechanism ran, on both data sets together.
- **runs**, for `door`: the keys of one grouped question. A coin flip for each key decides whether a
  *canary*, a test person, is in the data. A fit (`a line`, `odds`) asks several questions, and
  all have the same keys. In a stream, runs are the places for canaries in its days.
- **twin**: `2x caught` means that the auditor caught the twin of twice the epsilon.
- **verdict**: `not accused` means that the lower bound is not above the claim.
"""
_ZOO: Final = """
## The zoo

The zoo has mechanisms that are broken on purpose. Each one runs on two neighbouring data sets that
show its fault. The auditor must catch each mechanism that running can catch, in at most 131,072
runs. It stops as soon as the claim is surely broken. So "at least" says where the auditor stopped,
and not how bad the fault is.

The column "somebody" says how the two data sets of a broken mechanism differ, and so whom its claim
protects:
- *joins*: one person is added. The guarantee of sfumato's own releases uses this relation.
- *swaps*: one person's row is replaced by another row. Counts of several things, or of a fixed
  number of people, need this relation.
- *answers*: one person gives another answer. Noise on a respondent's device has to hide this.
- *reorders*: nobody's data change, and the rows are in another order.
"""


def held_row(one: MechanismAudit) -> Row:
    """Return the page's table row for the audit of a shipped mechanism, whose claim must hold."""
    twin = f"{one.factor}x {'caught' if one.tells else 'PASSED'}"
    found = one.audited
    return (one.name, one.where, _claim(found), _bound(found), f"{found.samples:,}", twin,
            one.verdict)  # fmt: skip


def found_row(one: SpecimenAudit) -> Row:
    """Return the page's table row for the audit of a broken mechanism, whose flaw must be found."""
    found, specimen = one.audited, one.specimen
    return (specimen.id, specimen.name, _claim(found), specimen.relation, _bound(found),
            f"{found.samples:,}", found.view, one.verdict)  # fmt: skip


def _claim(found: Audited) -> str:
    delta = f", delta {found.delta:g}" if found.delta else ""
    return f"{found.words} {found.claim:.3g}{delta}"


def _bound(found: Audited) -> str:
    return f"{found.lower:.3g}"


def page(held: Sequence[MechanismAudit], found: Sequence[SpecimenAudit], before: str = "") -> str:
    """Return the Markdown page of audits; rows not audited again come from the old page."""
    shipped = {line[:2]: line for line in (*_lines_of(before, HELD), *map(held_row, held))}
    zoo = {line[0]: line for line in (*_lines_of(before, FOUND), *map(found_row, found))}
    ids = [one.id for one in ZOO]
    tables = (
        _markdown(HELD, sorted(_known(shipped.values(), names()), key=_place)),
        _markdown(FOUND, sorted(_known(zoo.values(), ids), key=lambda line: ids.index(line[0]))),
    )
    return f"{_TOP}\n{tables[0]}\n{_ZOO}\n{tables[1]}\n"


def _known(lines: Iterable[Row], known: Sequence[str]) -> list[Row]:
    """Return the rows of the old page whose audits still exist, so that the new page keeps them."""
    return [line for line in lines if line[0] in known]


def _place(line: Row) -> tuple[int, int]:
    name, where = line[:2]
    return PLACES.index(where) if where in PLACES else len(PLACES), names().index(name)


def _lines_of(text: str, header: Row) -> list[Row]:
    """Parse the rows of the table with this header from a Markdown page.

    The result is empty if the page has no such table.
    """
    _, _, after = text.partition(f"{_markdown(header, [])}\n")
    rows = takewhile(lambda line: line.startswith("| "), after.splitlines())
    return [tuple(cell.strip() for cell in row.strip("| ").split(" | ")) for row in rows]


def _markdown(header: Row, rows: Sequence[Row]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', ' ') for cell in line)} |" for line in lines)


def shape_of(name: str, found: Audited, verdict: str) -> dict[str, object]:
    """Return an audit as JSON values, in the machine-readable form of the command line."""
    return {
        "name": name,
        "claim": {found.words: found.claim, "delta": found.delta},
        "at_least": found.lower,
        "confidence": found.confidence,
        "runs": found.samples,
        "seen_in": found.view,
        "verdict": verdict,
        "finding": found.finding,
    }
