"""Store surveys and their reports in SQL so that the tables don't reveal the order of arrival.

The reports of a survey are a set of lines "token said" (token digest and report). They are
partitioned by the first bits of the token's digest. Each part is one sorted text, which is
rewritten when a line is added. When the number of reports doubles, every part is split in two. So
the same set of reports gives the same rows, in whatever order they arrived. A report has no row of
its own, no serial number and no time. A database's journal, a backup in between or PostgreSQL's
bookkeeping can reveal more (docs/how-to/surveys.md).

Public reports, and the counts behind the estimates, are updated in steps of at least 25 reports. So
frequent readers can't tell whose report has just arrived. At each step 25 reports, drawn from those
not shown yet, are held back. So somebody with a copy of the store who subtracts the shown reports
finds the newest among 25 others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Bug
from sfumato.features.surveys.ports import (
    Ballot,
    Fits,
    Invited,
    ReportTotals,
    State,
    StoredSurvey,
    TakeResult,
)
from sfumato.features.surveys.tally import Tally, read_tally
from sfumato.storage.database import DatabaseLink
from sfumato.storage.records_database import Records
from sfumato.system.group_commit import GroupCommit, Outcome

PART: Final = 64  # the most reports per part on average; after a split, half as many
STEP: Final = 25  # the fewest reports that one update of the public reports adds
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS surveys (
        id TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, body TEXT NOT NULL,
        minimum {integer} NOT NULL, state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
        depth {integer} NOT NULL, tally TEXT NOT NULL, shown TEXT NOT NULL
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS survey_invitations (
        code TEXT NOT NULL PRIMARY KEY, survey TEXT NOT NULL, account TEXT NOT NULL
    ){table_end}""",
    "CREATE INDEX IF NOT EXISTS survey_invited ON survey_invitations (survey)",
    # Adding a survey locks this table's one row, so two waves can't be added concurrently.
    "CREATE TABLE IF NOT EXISTS survey_turn (one {integer} NOT NULL PRIMARY KEY){table_end}",
    """CREATE TABLE IF NOT EXISTS survey_parts (
        survey TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (survey, name)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS survey_shown (
        survey TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (survey, name)
    ){table_end}""",
)
_TEXTS: Final = "SELECT body FROM surveys ORDER BY id"
_PAGE: Final = 64  # number of parts on one page


@dataclass
class _Open:
    """A survey's stored state, as one transaction reads and changes it.

    The transaction has locked the survey's database row.
    """

    id: str
    minimum: int
    state: State
    depth: int
    tally: Tally
    shown: Tally


class SqlSurveys:
    """A SurveyStore in an SQL database: a separate one, or the ledger's PostgreSQL."""

    def __init__(self, records: Records, dice: RandomSource) -> None:
        self._records = records
        self._dice = dice
        self._lock = records.lock_rows
        records.make(_TABLES)
        self._taking = GroupCommit(self._take_alone, self._take_several)

    def add(
        self, kept: StoredSurvey, minimum: int, empty: Tally, *, fits: Fits | None = None
    ) -> bool:
        """Store a survey if `fits` accepts the texts of all stored surveys.

        Return True if the survey was stored.
        """
        values = (kept.id, kept.owner, kept.text, minimum, kept.state, 0, empty.text())
        with self._records.change() as link:
            link.change("INSERT INTO survey_turn VALUES (1) ON CONFLICT DO NOTHING")
            link.rows(f"SELECT one FROM survey_turn{self._lock}")  # locked until the commit
            if fits is not None and not fits(text for (text,) in link.rows(_TEXTS)):
                return False
            link.change(
                "INSERT INTO surveys (id, owner, body, minimum, state, depth, tally, shown)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, empty.text()),
            )
            for table in ("survey_parts", "survey_shown"):
                link.change(f"INSERT INTO {table} VALUES (?, ?, ?)", (kept.id, "", ""))
        return True

    def find(self, survey: str) -> StoredSurvey | None:
        """Return the stored survey of this id, or None."""
        rows = self._records.rows(
            "SELECT id, owner, body, state FROM surveys WHERE id = ?", (survey,)
        )
        return StoredSurvey(*rows[0]) if rows else None

    def of(self, owner: str) -> tuple[StoredSurvey, ...]:
        """Return all surveys of an owner."""
        sql = "SELECT id, owner, body, state FROM surveys WHERE owner = ? ORDER BY id"
        return tuple(StoredSurvey(*row) for row in self._records.rows(sql, (owner,)))

    def every(self) -> tuple[StoredSurvey, ...]:
        """Return all surveys of all owners, to compare a new wave of a series with earlier ones."""
        sql = "SELECT id, owner, body, state FROM surveys ORDER BY id"
        return tuple(StoredSurvey(*row) for row in self._records.rows(sql))

    def close(self, survey: str) -> bool:
        """Close a survey and show all its reports; return whether this call closed it."""
        with self._records.change() as link:
            known = self._held(link, survey)
            if known is None or known.state == "closed":
                return False
            known.state = "closed"
            self._show(link, known)
            self._put(link, known)
            return True

    def invite(self, invited: tuple[Invited, ...]) -> None:
        """Store invitations to a survey, in the order of the codes' digests.

        So the order of the database's rows says nothing of the people who were invited.
        """
        with self._records.change() as link:
            for one in sorted(invited, key=lambda one: one.digest):
                values = (one.digest, one.survey, one.account)
                link.change("INSERT INTO survey_invitations VALUES (?, ?, ?)", values)

    def invited(self, digest: str) -> Invited | None:
        """Return the invitation whose code has this hash, or None."""
        sql = "SELECT code, survey, account FROM survey_invitations WHERE code = ?"
        rows = self._records.rows(sql, (digest,))
        return Invited(*rows[0]) if rows else None

    def invitations(self, survey: str) -> int:
        """Return the number of invitations to a survey."""
        sql = "SELECT count(*) FROM survey_invitations WHERE survey = ?"
        return int(self._records.rows(sql, (survey,))[0][0])

    def take(self, ballot: Ballot) -> TakeResult:
        """Count a report durably, once per ballot token, and return the outcome.

        It is "counted", "already" (sent before), "spent" (the token has another report) or
        "closed".
        """
        return self._taking.run(ballot)

    def take_all(self, ballots: Sequence[Ballot]) -> list[TakeResult]:
        """Count several reports in one commit; return the outcome of each (as `take`)."""
        by_survey: dict[str, list[int]] = defaultdict(list)
        for place, ballot in enumerate(ballots):
            by_survey[ballot.survey].append(place)
        ended: dict[int, TakeResult] = {}
        with self._records.change() as link:
            for survey in sorted(by_survey):
                places = by_survey[survey]
                taken = self._taken(link, [ballots[place] for place in places])
                ended.update(zip(places, taken, strict=True))
        return [ended[place] for place in range(len(ballots))]

    def standing(self, survey: str) -> ReportTotals:
        """Return a survey's number of all reports, and the tally of its published reports."""
        rows = self._records.rows("SELECT tally, shown FROM surveys WHERE id = ?", (survey,))
        if not rows:
            raise Bug("a survey that is not there is looked at")
        tally, shown = map(read_tally, rows[0])
        return ReportTotals(tally.reports, shown)

    def shown(self, survey: str, after: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return the published reports that follow the partition named `after`, in token order.

        The reports are a page of several partitions.
        """
        sql = "SELECT name, body FROM survey_shown WHERE survey = ?"
        values: tuple[object, ...] = (survey,)
        if after is not None:
            # "2" sorts after both halves of the part, whose names add "0" or "1", if it was split.
            sql, values = f"{sql} AND name > ?", (survey, f"{after}2")
        rows = self._records.rows(f"{sql} ORDER BY name LIMIT {_PAGE}", values)
        return tuple((name, tuple(_lines(body))) for name, body in rows)

    def shut(self) -> None:
        """Close the connection to the database."""
        self._records.close()

    def _take_alone(self, ballot: Ballot) -> TakeResult:
        return self.take_all([ballot])[0]

    def _take_several(self, ballots: Sequence[Ballot]) -> Sequence[Outcome[TakeResult]]:
        return [Outcome(taken) for taken in self.take_all(ballots)]

    def _taken(self, link: DatabaseLink, ballots: list[Ballot]) -> list[TakeResult]:
        """Add new reports to one survey's partitions and tally; return the outcome of each report.

        Each ballot token counts once.
        """
        known = self._held(link, ballots[0].survey)
        if known is None:
            raise Bug("a report of a survey that is not there")
        names = [_name(ballot.token, known.depth) for ballot in ballots]
        bodies = _read_parts(link, known.id, set(names))
        parts = {name: _lines(body) for name, body in bodies.items()}
        ends: list[TakeResult] = []
        fresh: dict[str, list[str]] = defaultdict(list)  # part name -> new reports
        for ballot, name in zip(ballots, names, strict=True):
            place, said = _looked_up(parts[name], ballot.token)
            if said is not None:
                ends.append("already" if said == ballot.said else "spent")
            elif known.state == "closed":
                ends.append("closed")
            else:
                parts[name].insert(place, f"{ballot.token} {ballot.said}")
                fresh[name].append(ballot.said)
                ends.append("counted")
        if fresh:
            _write_parts(link, known.id, {name: parts[name] for name in fresh})
            known.tally = known.tally.with_reports([one for said in fresh.values() for one in said])
            self._grow(link, known)
            self._show_step(link, known)
            self._put(link, known)
        return ends

    def _held(self, link: DatabaseLink, survey: str) -> _Open | None:
        rows = link.rows(
            f"SELECT id, minimum, state, depth, tally, shown FROM surveys WHERE id = ?{self._lock}",
            (survey,),
        )
        if not rows:
            return None
        name, minimum, state, depth, tally, shown = rows[0]
        return _Open(name, minimum, state, depth, read_tally(tally), read_tally(shown))

    def _put(self, link: DatabaseLink, known: _Open) -> None:
        values = (known.state, known.depth, known.tally.text(), known.shown.text(), known.id)
        link.change(
            "UPDATE surveys SET state = ?, depth = ?, tally = ?, shown = ? WHERE id = ?", values
        )

    def _grow(self, link: DatabaseLink, known: _Open) -> None:
        """Split the partitions of a survey's reports until they average at most 64 reports (PART).

        Each split doubles the number of partitions.
        """
        while known.tally.reports > PART << known.depth:
            known.depth += 1
            names = [name for (name,) in _part_names(link, known.id)]
            for name in names:
                lines = _lines(_read_parts(link, known.id, {name})[name])
                link.change(
                    "DELETE FROM survey_parts WHERE survey = ? AND name = ?", (known.id, name)
                )
                for half in (f"{name}0", f"{name}1"):
                    mine = [line for line in lines if _name(line[:64], known.depth) == half]
                    values = (known.id, half, "\n".join(mine))
                    link.change("INSERT INTO survey_parts VALUES (?, ?, ?)", values)

    def _show_step(self, link: DatabaseLink, known: _Open) -> None:
        waiting = known.tally.reports - known.shown.reports
        enough = known.tally.reports - STEP >= known.minimum
        if enough and waiting >= STEP + max(STEP, known.shown.reports // 20):
            self._show_but(link, known)

    def _show_but(self, link: DatabaseLink, known: _Open) -> None:
        """Publish all reports but 25 (STEP), which are drawn at random and stay unpublished.

        They are drawn from the reports that were not published yet. So a report that arrives next
        is one of 26, even for somebody with a copy of the store.
        """
        pool = sorted(_unshown(link, known.id), key=lambda _: self._dice.draw(16))
        held, rest = pool[:STEP], pool[STEP:]
        shown = known.shown.with_reports([_pair(line)[1] for line in rest])
        self._show(link, known)
        known.shown = shown
        by_part: dict[str, set[str]] = defaultdict(set)
        for line in held:
            by_part[_name(line[:64], known.depth)].add(line)
        parts = _read_parts(link, known.id, set(by_part))
        for name in sorted(by_part):
            kept = [line for line in _lines(parts[name]) if line not in by_part[name]]
            link.change(
                "UPDATE survey_shown SET body = ? WHERE survey = ? AND name = ?",
                ("\n".join(kept), known.id, name),
            )

    def _show(self, link: DatabaseLink, known: _Open) -> None:
        link.change("DELETE FROM survey_shown WHERE survey = ?", (known.id,))
        link.change(
            "INSERT INTO survey_shown SELECT survey, name, body FROM survey_parts"
            " WHERE survey = ? ORDER BY name",
            (known.id,),
        )
        known.shown = known.tally


def _unshown(link: DatabaseLink, survey: str) -> list[str]:
    """Return a survey's reports that are not published yet, as lines of token digest and report.

    The published partitions may be split less often than the stored ones.
    """
    ((depth,),) = link.rows(
        "SELECT max(length(name)) FROM survey_shown WHERE survey = ?", (survey,)
    )
    found: list[str] = []
    after = ""
    while True:
        rows = link.rows(
            "SELECT p.name, p.body, s.body FROM survey_parts p JOIN survey_shown s"
            f" ON s.survey = p.survey AND s.name = substr(p.name, 1, {int(depth)})"
            f" WHERE p.survey = ? AND p.name >= ? ORDER BY p.name LIMIT {_PAGE}",
            (survey, after),
        )
        for _, body, shown in rows:
            known = set(_lines(shown))
            found += [line for line in _lines(body) if line not in known]
        if len(rows) < _PAGE:
            return found
        # continues after this part alone, because no part's name is a prefix of another part's
        after = f"{rows[-1][0]}0"


def _name(token: str, depth: int) -> str:
    """Return the name of the partition for a token's report: the first bits of the token's digest.

    `depth` is the number of bits.
    """
    return f"{int(token[:16], 16):064b}"[:depth]  # the digits give 64 bits, more than any depth


def _part_names(
    link: DatabaseLink, survey: str
) -> list[tuple[Any, ...]]:  # Any: as Link.rows has it
    return link.rows("SELECT name FROM survey_parts WHERE survey = ? ORDER BY name", (survey,))


def _read_parts(link: DatabaseLink, survey: str, names: set[str]) -> dict[str, str]:
    marks = ", ".join("?" * len(names))
    sql = f"SELECT name, body FROM survey_parts WHERE survey = ? AND name IN ({marks})"
    found = dict(link.rows(sql, (survey, *sorted(names))))
    if set(found) != names:
        raise Bug("a part of a survey's reports is missing")
    return found


def _write_parts(link: DatabaseLink, survey: str, parts: dict[str, list[str]]) -> None:
    sql = "UPDATE survey_parts SET body = ? WHERE survey = ? AND name = ?"
    for name in sorted(parts):
        link.change(sql, ("\n".join(parts[name]), survey, name))


def _looked_up(lines: list[str], token: str) -> tuple[int, str | None]:
    """Look up a token's report in sorted lines of token digest and report.

    Returns the line's index and the report. If the token is not there, returns the index at which
    to insert a line, and None.
    """
    place = bisect_left(lines, token)
    if place < len(lines) and lines[place].startswith(token):
        return place, _pair(lines[place])[1]
    return place, None


def _lines(body: str) -> list[str]:
    return body.split("\n") if body else []


def _pair(line: str) -> tuple[str, str]:
    token, _, said = line.partition(" ")
    return token, said
