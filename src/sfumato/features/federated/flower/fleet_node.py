"""A fleet node's folder: its key, the owner's limits, and the epsilon and delta spent.

A Flower client has no vault. A database of charges next to the key enforces the budget, and a
charge is written before a row is read. This is only as trustworthy as the node's operator: no
anchor detects that an older copy was restored.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sfumato.dp.refusal import Refused
from sfumato.dp.secure_aggregation.round_terms import not_trusted
from sfumato.features.federated.agreement import Agreement, bad_federation, read_agreement
from sfumato.features.federated.flower.fleet_schedule import Plan
from sfumato.system.randomness import SystemRandomSource

KEY, RULES, AGREEMENT, SPENT = "site.key", "site.json", "agreement.json", "spent.sqlite"
KEY_BYTES: Final = 32
WAIT_S: Final = 30
_TABLES: Final = (
    "CREATE TABLE nonces (nonce BLOB PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE charges (schedule TEXT PRIMARY KEY, epsilon TEXT, delta TEXT, said TEXT)",
    "CREATE TABLE rounds (schedule TEXT, number INTEGER, PRIMARY KEY (schedule, number))",
    "CREATE TABLE kept (nonce BLOB PRIMARY KEY, sealed BLOB) WITHOUT ROWID",
)


@dataclass(frozen=True)
class Rules:
    """A fleet site owner's limits: epsilon, delta, and if sums without noise are allowed.

    The limits are for all schedules together, present and future.
    """

    name: str
    epsilon: Fraction
    delta: Fraction
    lets_average: bool  # True: the owner also allows sums without noise, `secure-average (not DP)`


def new_site(
    folder: Path,
    name: str,
    *,
    epsilon: float | str,
    delta: float | str,
    lets_average: bool = False,
) -> str:
    """Create a fleet site in an empty folder; return its public key for the other sites."""
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    if any(folder.iterdir()):
        raise Refused(
            "vault-exists",
            f"The folder {folder} is not empty.",
            "Choose a new or empty folder for the site.",
        )
    rules = {"name": name, "epsilon": str(epsilon), "delta": str(delta), "average": lets_average}
    (folder / RULES).write_text(json.dumps(rules, indent=2), "utf-8")
    secret = SystemRandomSource().draw(KEY_BYTES)
    (folder / KEY).touch(mode=0o600)
    (folder / KEY).write_bytes(secret)
    database = sqlite3.connect(folder / SPENT, isolation_level=None)
    for table in _TABLES:
        database.execute(table)
    database.close()
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw().hex()


def join_fleet(folder: Path, agreement: dict[str, object]) -> None:
    """Store the agreement of a Flower fleet (its sites and terms), if it lists this site."""
    node, found = Node(folder), read_agreement(agreement)
    if found.name_of(node.public) != node.rules.name:
        raise bad_federation("this site is not in it under its name and key")
    (folder / AGREEMENT).write_text(json.dumps(agreement, indent=2), "utf-8")


class Node:
    """The folder of a fleet site: its key, the owner's limits, and its database of charges."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rules = _rules(self._read(RULES))
        self.identity = Ed25519PrivateKey.from_private_bytes(self._secret())
        self.public = self.identity.public_key().public_bytes_raw()

    def agreement(self) -> Agreement:
        """Return the agreement that the owner has joined."""
        return read_agreement(self._read(AGREEMENT))

    @contextmanager
    def turn(self) -> Iterator[Transaction]:
        """Hold an exclusive transaction of the charges database during the `with` block.

        The transaction commits at the end of the block, and rolls back after an error.
        """
        with _kept_quiet(), self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield Transaction(database, self.rules)
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        path = (
            self._folder / SPENT
        ).absolute().as_uri() + "?mode=rw"  # never create a missing file
        database = sqlite3.connect(path, uri=True, timeout=WAIT_S, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous=EXTRA")
            database.execute("PRAGMA secure_delete=ON")
            yield database
        finally:
            database.close()

    def _read(self, name: str) -> dict[str, object]:
        try:
            found = json.loads((self._folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise _missing(self._folder / name)
        return found

    def _secret(self) -> bytes:
        try:
            secret = (self._folder / KEY).read_bytes()
        except OSError:
            secret = b""
        if len(secret) != KEY_BYTES:
            raise _missing(self._folder / KEY)
        return secret


class Transaction:
    """One open transaction of a fleet site's database of charges: its reads and its writes."""

    def __init__(self, database: sqlite3.Connection, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    def take_nonce(self, nonce: bytes) -> None:
        """Store a round's nonce permanently; refuse a nonce that is already stored."""
        if self._database.execute("SELECT 1 FROM nonces WHERE nonce = ?", (nonce,)).fetchone():
            raise not_trusted("this site already took part in a round with this nonce")
        self._database.execute("INSERT INTO nonces VALUES (?)", (nonce,))

    def check_chargeable(self, plan: Plan, number: int) -> None:
        """Refuse a round above the owner's limits, or one with an unknown or used number."""
        schedule = plan.schedule
        if not 1 <= number <= schedule.rounds:
            raise not_trusted("the schedule has no round of that number")
        done = "SELECT 1 FROM rounds WHERE schedule = ? AND number = ?"
        if self._database.execute(done, (plan.digest, number)).fetchone():
            raise not_trusted("this site already took part in the round of that number")
        if schedule.epsilon is None or schedule.delta is None:
            if not self._rules.lets_average:
                raise not_trusted("this site's owner allows no sums without noise")
            return
        paid = self._charges()
        if plan.digest in paid:
            return
        epsilon = schedule.epsilon + sum((spent for spent, _ in paid.values()), Fraction(0))
        delta = schedule.delta + sum((spent for _, spent in paid.values()), Fraction(0))
        if epsilon > self._rules.epsilon or delta > self._rules.delta:
            raise Refused(
                "budget-exceeded",
                f"With this schedule, the site would spend epsilon {float(epsilon):.4g} and "
                f"delta {float(delta):.4g} in all. Its owner allows "
                f"{float(self._rules.epsilon):.4g} and {float(self._rules.delta):.4g}.",
                "Give the schedule a smaller epsilon or delta, or ask the site's owner to allow "
                "more.",
            )

    def charge(self, plan: Plan, number: int) -> None:
        """Charge the schedule unless it is charged already, and mark the round as used.

        Charge and mark are durable when the transaction ends.
        """
        self.check_chargeable(plan, number)
        self._database.execute("INSERT INTO rounds VALUES (?, ?)", (plan.digest, number))
        schedule = plan.schedule
        if schedule.epsilon is not None and plan.digest not in self._charges():
            line = (plan.digest, str(schedule.epsilon), str(schedule.delta), schedule.spelled())
            self._database.execute("INSERT INTO charges VALUES (?, ?, ?, ?)", line)

    def spent(self) -> tuple[Fraction, Fraction]:
        """Return the total epsilon and delta of all charged schedules."""
        paid = self._charges().values()
        return sum((e for e, _ in paid), Fraction(0)), sum((d for _, d in paid), Fraction(0))

    def _charges(self) -> dict[str, tuple[Fraction, Fraction]]:
        rows = self._database.execute("SELECT schedule, epsilon, delta FROM charges").fetchall()
        return {name: (Fraction(epsilon), Fraction(delta)) for name, epsilon, delta in rows}

    def keep(self, nonce: bytes, sealed: bytes) -> None:
        """Save the encrypted state of a round, because the next stage runs in a new process."""
        self._database.execute("INSERT INTO kept VALUES (?, ?)", (nonce, sealed))

    def take_kept(self, nonce: bytes) -> bytes:
        """Return the saved state of a round, and delete it, so that no stage runs on it twice."""
        row = self._database.execute("SELECT sealed FROM kept WHERE nonce = ?", (nonce,)).fetchone()
        if row is None:
            raise _out_of_round()
        self._database.execute("DELETE FROM kept WHERE nonce = ?", (nonce,))
        return bytes(row[0])

    def forget_rounds(self) -> None:
        """Delete the state of earlier rounds: a site is in one round at a time."""
        self._database.execute("DELETE FROM kept")


def spent_at(folder: Path) -> dict[str, str]:
    """Return the epsilon and delta that a fleet site has spent, and its owner's caps, as texts."""
    node = Node(folder)
    with node.turn() as turn:
        epsilon, delta = turn.spent()
    allowed = {"epsilon_cap": str(node.rules.epsilon), "delta_cap": str(node.rules.delta)}
    return {"epsilon": str(epsilon), "delta": str(delta), **allowed}


def _rules(said: dict[str, object]) -> Rules:
    match said:
        case {"name": str(name), "epsilon": str(epsilon), "delta": str(delta),
              "average": bool(lets_average)}:  # fmt: skip
            try:
                return Rules(name, Fraction(epsilon), Fraction(delta), lets_average)
            except (ValueError, ZeroDivisionError) as wrong:
                raise bad_federation("the caps in site.json are not numbers") from wrong
    raise bad_federation(
        "site.json must have the site's name, epsilon, delta, and whether it allows averages"
    )


@contextmanager
def _kept_quiet() -> Iterator[None]:
    """Convert SQLite errors to a refusal that does not quote them, during the `with` block.

    Without its database file of charges, the site can charge nothing, so it takes no part.
    """
    try:
        yield
        return
    except sqlite3.Error as wrong:
        said = type(wrong).__name__
    raise Refused(
        "ledger-unavailable",
        f"The site's file of charges cannot be used ({said}).",
        "Nothing was sent. Free disk space or restore the file, but do not create a new one: it "
        "would lack what was spent.",
    )


def _out_of_round() -> Refused:
    return Refused(
        "sum-message-refused",
        "The site has not joined this round of the secure sum, or is at another stage of it.",
        "Nothing needs to be done: the site joins the next round by itself.",
    )


def _missing(path: Path) -> Refused:
    return Refused(
        "vault-missing",
        f"The site's folder or file {path} does not exist.",
        "Create the site first with new_site(...).",
    )
