"""The catalogue in SQL: signed cards, their owners, groups and grants; no rows of data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from sfumato.storage.records_database import Records
from sfumato.vault.card.data_card import Card
from sfumato.vault.ports import Grant, Listing, Opened

FOLDERS: Final = ("tables", "people")  # folders of the vault that hold prepared tables and sketches
_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS versions (
        id {integer} NOT NULL PRIMARY KEY, name TEXT NOT NULL, card TEXT NOT NULL,
        place TEXT NOT NULL, people TEXT NOT NULL, sketch TEXT NOT NULL, owner TEXT NOT NULL
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS members (
        person TEXT NOT NULL, team TEXT NOT NULL, PRIMARY KEY (person, team)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS grants (
        data_set TEXT NOT NULL, person TEXT NOT NULL, team TEXT NOT NULL, granter TEXT NOT NULL,
        at TEXT NOT NULL, PRIMARY KEY (data_set, person, team)
    ){table_end}""",
    """CREATE TABLE IF NOT EXISTS frozen_data_sets (
        data_set TEXT NOT NULL PRIMARY KEY, freezer TEXT NOT NULL, at TEXT NOT NULL
    ){table_end}""",
)
_OPENED: Final = (
    "SELECT 'version', CAST(max(id) AS TEXT) FROM versions WHERE lower(name) = lower(?)"
    " UNION ALL SELECT 'frozen', data_set FROM frozen_data_sets WHERE data_set = ?"
    " UNION ALL SELECT 'group', team FROM members WHERE person = ?"
    " UNION ALL SELECT 'group', team FROM grants WHERE person = ? AND lower(data_set) = lower(?)"
)
_CURRENT: Final = (
    "SELECT name, card, place, owner FROM versions WHERE id = ? AND lower(name) = lower(?)"
)


class SqlCatalogue:
    """Catalogue of data sets in the records database: cards, owners, groups and grants.

    It keeps every version of a data card; the newest is current.
    """

    def __init__(
        self, records: Records, read: Callable[[str, str], Card], root: Path | None = None
    ) -> None:
        self._records = records
        self._read = read
        self._root = root  # the vault's current folder
        # name -> (connection number, version, listing). A version never changes. But after a
        # restored backup its id may belong to another version; then the connection number is a new
        # one.
        self._last: dict[str, tuple[int, int, Listing]] = {}
        self._cards: dict[tuple[str, str], Card] = {}  # (name, text) -> card, for all versions
        records.make(_TABLES)

    def names(self) -> tuple[str, ...]:
        """Return the names of all data sets, sorted."""
        rows = self._records.rows("SELECT DISTINCT name FROM versions")
        return tuple(sorted(str(name) for (name,) in rows))

    def find(self, name: str) -> Listing | None:
        """Return the current version of a data set, or None; letter case is ignored."""
        if (
            not name.isascii() or not name.isprintable()
        ):  # card names are printable ASCII; databases treat the case of other letters differently
            return None
        rows = self._records.rows(
            "SELECT max(id) FROM versions WHERE lower(name) = lower(?)", (name,)
        )
        return None if rows[0][0] is None else self._listing(name, int(rows[0][0]))

    def cards(self) -> tuple[Card, ...]:
        """Return the signed data cards of all versions of all data sets.

        Later calls return the same card objects.
        """
        rows = self._records.rows("SELECT name, card FROM versions ORDER BY id")
        texts, known = [(str(name), str(card)) for name, card in rows], self._cards
        self._cards = found = {o: known[o] if o in known else self._read(*o) for o in texts}
        return tuple(found[one] for one in texts)

    def cards_of(self, name: str) -> tuple[Card, ...]:
        """Return the signed data cards of all versions of one data set; parse no other card."""
        sql = "SELECT name, card FROM versions WHERE lower(name) = lower(?) ORDER BY id"
        texts = [(str(name), str(card)) for name, card in self._records.rows(sql, (name,))]
        return tuple(self._cards.get(one) or self._read(*one) for one in texts)

    def text(self, name: str) -> str:
        """Return the stored text of a data set's current data card, with exact numbers."""
        sql = "SELECT card FROM versions WHERE lower(name) = lower(?) ORDER BY id DESC LIMIT 1"
        return str(self._records.rows(sql, (name,))[0][0])

    def put(self, listing: Listing, card_text: str, people: str, sketch: str) -> None:
        """Store a new version of a data set, which becomes the current one."""
        with self._records.change() as link:
            found = link.rows("SELECT coalesce(max(id), 0) + 1 FROM versions")
            link.change(
                "INSERT INTO versions (id, name, card, place, people, sketch, owner)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (found[0][0], listing.card.name, card_text, listing.table, people, sketch,
                 listing.owner),
            )  # fmt: skip

    def groups_of(self, user: str, data_set: str = "") -> tuple[str, ...]:
        """Return the groups of a user that apply to a data set.

        The user is enrolled in them for every data set, or has a grant for this one.
        """
        rows = self._records.rows(
            "SELECT team FROM members WHERE person = ?"
            " UNION SELECT team FROM grants WHERE person = ? AND lower(data_set) = lower(?)",
            (user, user, data_set),
        )
        return tuple(sorted(str(team) for (team,) in rows))

    def opened(self, name: str, user: str) -> Opened | None:
        """Return a data set's version, the user's groups and whether queries are blocked.

        It replaces `find`, `groups_of` and `is_frozen` by one SQL statement. Return None if there
        is no such data set.
        """
        if not name.isascii() or not name.isprintable():
            return None
        rows = self._records.rows(_OPENED, (name, name.casefold(), user, user, name))
        versions = [text for what, text in rows if what == "version" and text is not None]
        found = self._listing(name, int(versions[0])) if versions else None
        if found is None:
            return None
        groups = {str(text) for what, text in rows if what == "group"}
        is_frozen = any(what == "frozen" for what, _ in rows)
        return Opened(found, tuple(sorted(groups)), is_frozen)

    def enrol(self, user: str, group: str) -> None:
        """Add a user to a group, for every data set."""
        with self._records.change() as link:
            link.change(
                "INSERT INTO members (person, team) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (user, group),
            )

    def grant(self, grant: Grant) -> None:
        """Add a user to a group, for one data set."""
        with self._records.change() as link:
            link.change(
                "INSERT INTO grants (data_set, person, team, granter, at) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (grant.data_set, grant.user, grant.group, grant.by, grant.at),
            )

    def revoke(self, data_set: str, user: str) -> bool:
        """Remove a user's grants on a data set; return whether the user had any."""
        with self._records.change() as link:
            sql = "DELETE FROM grants WHERE lower(data_set) = lower(?) AND person = ?"
            return link.change(sql, (data_set, user)) > 0

    def grants(self, data_set: str) -> tuple[Grant, ...]:
        """Return all grants on a data set, sorted by user and time."""
        rows = self._records.rows(
            "SELECT data_set, person, team, granter, at FROM grants"
            " WHERE lower(data_set) = lower(?)",
            (data_set,),
        )
        return tuple(sorted((Grant(*map(str, row)) for row in rows), key=lambda g: (g.user, g.at)))

    def enrolled(self) -> tuple[tuple[str, str], ...]:
        """Return (user, group) of all users who are enrolled in a group for every data set."""
        rows = self._records.rows("SELECT person, team FROM members")
        return tuple(sorted((str(person), str(team)) for person, team in rows))

    def freeze(self, data_set: str, by: str, at: str) -> bool:
        """Block all queries to a data set; return False if it was blocked already."""
        sql = (
            "INSERT INTO frozen_data_sets (data_set, freezer, at) VALUES (?, ?, ?)"
            " ON CONFLICT DO NOTHING"
        )
        with self._records.change() as link:
            return link.change(sql, (data_set.casefold(), by, at)) > 0

    def thaw(self, data_set: str) -> bool:
        """Allow queries to a data set again; return whether it was blocked."""
        with self._records.change() as link:
            sql = "DELETE FROM frozen_data_sets WHERE data_set = ?"
            return link.change(sql, (data_set.casefold(),)) > 0

    def is_frozen(self, data_set: str) -> bool:
        """Say whether queries to a data set are blocked, on all nodes that share the database."""
        sql = "SELECT 1 FROM frozen_data_sets WHERE data_set = ?"
        return bool(self._records.rows(sql, (data_set.casefold(),)))

    def people(self, owner: str | None = None) -> tuple[tuple[str, str], ...]:
        """Return people domain and sketch file of every version, of one owner's or all data sets.

        A people domain names the people in the data. A sketch detects the same people in other
        data.
        """
        rows = self._records.rows("SELECT people, sketch, owner FROM versions ORDER BY id")
        return tuple((str(p), self._now(str(s))) for p, s, whose in rows if owner in (None, whose))

    def close(self) -> None:
        """Close the connection to the database."""
        self._records.close()

    def _listing(self, name: str, version: int) -> Listing | None:
        """Return one version of a data set, with its parsed card; the newest is cached."""
        key = name.casefold()
        made, known, found = self._last.get(key, (0, 0, None))
        if found is not None and (made, known) == (self._records.made, version):
            return found
        # taken before the query, so that a later reconnect makes the cache entry stale
        made = self._records.made
        rows = self._records.rows(_CURRENT, (version, name))
        if not rows:  # the database was restored after the version was found
            return None
        spelled, text, place, owner = map(str, rows[0])
        listing = Listing(self._read(spelled, text), self._now(place), owner)
        self._last[key] = made, version, listing
        return listing

    def _now(self, stored: str) -> str:
        """Return where a stored file is now; the vault may have been moved or copied."""
        path = Path(stored)
        if self._root is None or path.parent.name not in FOLDERS:
            return stored
        return str(self._root / path.parent.name / path.name)
