"""Surveys and their reports, kept so that no file says in which order reports came.

All reports of a survey are one set of lines, "token said", cut into parts by the first bits of the
token's digest. A part is one text, sorted, and written anew whenever a line is added; when the
reports are twice as many, every part is cut in two. So what is stored is the same for the same set
of reports, whatever the order of their coming: there is no row of a report's own, no number that
counts up and no time. (What a journal, a backup in the middle or PostgreSQL's own bookkeeping adds
to that is told in docs/surveys.md.)

What may be seen - the reports that all may read, and the counts behind the estimates - moves on in
steps of at least 25 reports, so that nobody who looks often learns whose report came just now. At
each step 25 reports, drawn among all that were not shown yet, wait for the next: so whoever has a
copy of the store, and takes what is shown from what is there, finds the newest among 25 others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sfumato.dp.ports import Dice
from sfumato.dp.refusal import Bug
from sfumato.features.surveys.ports import Ballot, Fits, Invited, Kept, Standing, State, Taken
from sfumato.features.surveys.tally import Tally, read_tally
from sfumato.storage.database import DatabaseLink
from sfumato.storage.records_database import Records
from sfumato.system.group_commit import GroupCommit, Outcome

PART: Final = 64  # reports of a part, on average, at most; half of it at least
STEP: Final = 25  # reports by which what is shown moves on, at least
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
    # Whoever adds a survey holds its one row: two waves are never published unseen by each other.
    "CREATE TABLE IF NOT EXISTS survey_turn (one {integer} NOT NULL PRIMARY KEY){table_end}",
    """CREATE TABLE IF NOT EXISTS survey_parts (
        survey TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (survey, name)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS survey_shown (
        survey TEXT NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (survey, name)
    ){table_end}""",
)
_TEXTS: Final = "SELECT body FROM surveys ORDER BY id"
_PAGE: Final = 64  # parts that are read at once


@dataclass
class _Open:
    """A survey whose row is held: nobody else adds to it until the transaction ends."""

    id: str
    minimum: int
    state: State
    depth: int
    tally: Tally
    shown: Tally


class SqlSurveys:
    """A SurveyStore in a database of its own, or in the ledger's PostgreSQL."""

    def __init__(self, records: Records, dice: Dice) -> None:
        self._records = records
        self._dice = dice
        self._lock = records.lock_rows
        records.make(_TABLES)
        self._taking = GroupCommit(self._take_alone, self._take_several)

    def add(self, kept: Kept, minimum: int, empty: Tally, *, fits: Fits | None = None) -> bool:
        """Remember a survey, if it fits the texts of all that are there; say whether it did."""
        values = (kept.id, kept.owner, kept.text, minimum, kept.state, 0, empty.text())
        with self._records.change() as link:
            link.change("INSERT INTO survey_turn VALUES (1) ON CONFLICT DO NOTHING")
            link.rows(f"SELECT one FROM survey_turn{self._lock}")  # held until the end
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

    def find(self, survey: str) -> Kept | None:
        """Return one, or None."""
        rows = self._records.rows(
            "SELECT id, owner, body, state FROM surveys WHERE id = ?", (survey,)
        )
        return Kept(*rows[0]) if rows else None

    def of(self, owner: str) -> tuple[Kept, ...]:
        """Return the owner's surveys."""
        sql = "SELECT id, owner, body, state FROM surveys WHERE owner = ? ORDER BY id"
        return tuple(Kept(*row) for row in self._records.rows(sql, (owner,)))

    def every(self) -> tuple[Kept, ...]:
        """Return all surveys, whoever owns them."""
        sql = "SELECT id, owner, body, state FROM surveys ORDER BY id"
        return tuple(Kept(*row) for row in self._records.rows(sql))

    def close(self, survey: str) -> bool:
        """Take no more reports, and show all that came; say whether this call did."""
        with self._records.change() as link:
            known = self._held(link, survey)
            if known is None or known.state == "closed":
                return False
            known.state = "closed"
            self._show(link, known)
            self._put(link, known)
            return True

    def invite(self, invited: tuple[Invited, ...]) -> None:
        """Remember invitations, in the order of their digests."""
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
        """Return how many invitations there are."""
        sql = "SELECT count(*) FROM survey_invitations WHERE survey = ?"
        return int(self._records.rows(sql, (survey,))[0][0])

    def take(self, ballot: Ballot) -> Taken:
        """Count the report once for its token, durably; or say why not."""
        return self._taking.done(ballot)

    def take_all(self, ballots: Sequence[Ballot]) -> list[Taken]:
        """Count several at once, with one commit for all; say of each how it ended."""
        by_survey: dict[str, list[int]] = defaultdict(list)
        for place, ballot in enumerate(ballots):
            by_survey[ballot.survey].append(place)
        ended: dict[int, Taken] = {}
        with self._records.change() as link:
            for survey in sorted(by_survey):
                places = by_survey[survey]
                taken = self._taken(link, [ballots[place] for place in places])
                ended.update(zip(places, taken, strict=True))
        return [ended[place] for place in range(len(ballots))]

    def standing(self, survey: str) -> Standing:
        """Return how many reports there are, and the tally of those that are shown."""
        rows = self._records.rows("SELECT tally, shown FROM surveys WHERE id = ?", (survey,))
        if not rows:
            raise Bug("a survey that is not there is looked at")
        tally, shown = map(read_tally, rows[0])
        return Standing(tally.reports, shown)

    def shown(self, survey: str, after: str | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return parts of the shown reports that follow that part, in the order of their tokens."""
        sql = "SELECT name, body FROM survey_shown WHERE survey = ?"
        values: tuple[object, ...] = (survey,)
        if after is not None:
            # Past the halves, too, that the part was cut in since: their names begin with its own.
            sql, values = f"{sql} AND name > ?", (survey, f"{after}2")
        rows = self._records.rows(f"{sql} ORDER BY name LIMIT {_PAGE}", values)
        return tuple((name, tuple(_lines(body))) for name, body in rows)

    def shut(self) -> None:
        """Let go of the connection."""
        self._records.close()

    def _take_alone(self, ballot: Ballot) -> Taken:
        return self.take_all([ballot])[0]

    def _take_several(self, ballots: Sequence[Ballot]) -> Sequence[Outcome[Taken]]:
        return [Outcome(taken) for taken in self.take_all(ballots)]

    def _taken(self, link: DatabaseLink, ballots: list[Ballot]) -> list[Taken]:
        """Add the reports of one survey that are new, in one go; a token counts once."""
        known = self._held(link, ballots[0].survey)
        if known is None:
            raise Bug("a report of a survey that is not there")
        names = [_name(ballot.token, known.depth) for ballot in ballots]
        bodies = _read_parts(link, known.id, set(names))
        parts = {name: _lines(body) for name, body in bodies.items()}
        ends: list[Taken] = []
        fresh: dict[str, list[str]] = defaultdict(list)  # part -> what was said there
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
        """Cut every part in two while there are more reports than parts should hold."""
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
        """Show all but STEP reports, drawn among those that were not shown: these wait on."""
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
    """Return the lines that are there and not shown; what is shown may be cut less finely."""
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
        after = f"{rows[-1][0]}0"  # the next: no name begins with another


def _name(token: str, depth: int) -> str:
    """Return the part that a token's report lies in: the first bits of its digest."""
    return f"{int(token[:16], 16):064b}"[:depth]  # more bits than there will be parts


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
    """Return where a token's line stands among the sorted ones, or would; and what it says."""
    place = bisect_left(lines, token)
    if place < len(lines) and lines[place].startswith(token):
        return place, _pair(lines[place])[1]
    return place, None


def _lines(body: str) -> list[str]:
    return body.split("\n") if body else []


def _pair(line: str) -> tuple[str, str]:
    token, _, said = line.partition(" ")
    return token, said
