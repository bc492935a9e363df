"""A vault's database engine: chosen once at `init`, constructed whenever the vault is opened.

`vault.json` has only the engine's kind: DuckDB, PostgreSQL or Spark. Its address and secrets are in
`keys/`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from sfumato.dp.ports import RandomSource
from sfumato.dp.refusal import Refused
from sfumato.engines.duckdb.engine import DuckDBEngine
from sfumato.engines.postgres.engine import PostgresEngine, PostgresServer
from sfumato.engines.shared.engine_address import PostgresAddress, SparkAddress, read_address
from sfumato.engines.shared.memory_scratch import MemoryScratch
from sfumato.engines.spark.engine import SparkEngine
from sfumato.storage.key_files import read_private, write_private
from sfumato.system.optional_packages import need_package
from sfumato.vault.engine_port import Engine, EngineStopped, StreamEngine

NAMES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "spark": "Spark"}
_NO_SALT: Final = bytes(32)  # a salt of zeros, because no rows are read while a vault is created


class VaultEngine(Engine, StreamEngine, Protocol):
    """The interface that every database engine of a vault has: DuckDB, PostgreSQL and Spark."""

    def is_ready(self) -> bool:
        """Return True if a process for reading rows runs or can start. This reads no row."""
        ...


@dataclass(frozen=True)
class Chosen:
    """The database engine that was chosen for a new vault: its kind, and its private settings."""

    kind: str
    private: Mapping[str, object] = field(default_factory=dict, repr=False)

    def keep(self, root: Path) -> None:
        """Write the engine's private settings, if it has any, into the vault's `keys/` folder."""
        if self.private:
            write_private(_file(root), json.dumps(self.private))


def choose_engine(address: str | None, reader: str | None, dice: RandomSource) -> Chosen:
    """Choose the engine at an address; for PostgreSQL, create its schema and read-only role."""
    found = None if address is None else read_address(address)
    if reader is not None and not isinstance(found, PostgresAddress):
        raise Refused(
            "engine-unavailable",
            "--engine-reader works only with a PostgreSQL engine.",
            "Leave --engine-reader out, or give --engine postgresql://...",
        )
    if found is None:
        return Chosen("duckdb")
    if isinstance(found, PostgresAddress):
        return Chosen("postgres", asdict(_made_place(found.url, reader, dice)))
    need_package("pyspark", "spark")
    return Chosen("spark", asdict(found))


def open_engine(
    kind: object, root: Path, salt: bytes, shelter: MemoryScratch | None = None
) -> VaultEngine:
    """Open the vault's engine; refuse a reader role that may do more than read."""
    match kind:
        case "duckdb":
            return DuckDBEngine(salt=salt, shelter=shelter)
        case "postgres":
            need_package("psycopg", "postgres")
            return _checked(PostgresEngine(salt, PostgresServer(**_private(root))))
        case "spark":
            need_package("pyspark", "spark")
            return SparkEngine(salt, _spark_place(_private(root)))
    raise Refused(
        "vault-missing",
        "The vault uses an engine that this version of sfumato does not know.",
        "Open the vault with the version of sfumato that made it, or a newer one.",
    )


def _made_place(owner: str, reader: str | None, dice: RandomSource) -> PostgresServer:
    """Create the vault's own schema in PostgreSQL, and the one role that may read it."""
    addresses = _addresses()
    addresses.check_network(owner)
    name, password = f"sfumato_{dice.draw(6).hex()}", None
    if reader is None:
        role, password = f"{name}_reader", dice.draw(24).hex()
        reader = addresses.reader_address(owner, role, password)
    else:
        addresses.check_network(reader)
        role = addresses.role_of(reader)
    place = PostgresServer(owner, reader, role, name)
    engine = PostgresEngine(_NO_SALT, place)
    is_made = False
    try:
        if engine.make_reader(password) is None:
            raise Refused(
                "engine-unavailable",
                "sfumato could not create its schema and its reader role in PostgreSQL.",
                "Give an address whose role may create roles and schemas, or name an "
                "existing reader role with --engine-reader.",
            )
        _check(engine, must_answer=True)
        is_made = True
    finally:
        if not is_made:
            engine.unmake_reader(with_role=password is not None)
        engine.close()
    return place


def _checked(engine: VaultEngine) -> VaultEngine:
    is_checked = False
    try:
        _check(engine, must_answer=False)
        is_checked = True
    finally:
        if not is_checked:
            engine.close()
    return engine


def _check(engine: Engine, *, must_answer: bool) -> None:
    """Refuse a reader role that may do more than read the prepared tables.

    Without `must_answer`, a server that does not answer is accepted: the driver checks again before
    it reads any row.
    """
    doors = None
    with contextlib.suppress(EngineStopped):
        doors = engine.self_test()
    if doors is None and must_answer:
        raise Refused(
            "engine-unavailable",
            "PostgreSQL does not let the reader role connect.",
            "Let the reader role log in (pg_hba.conf), or name another one with --engine-reader.",
        )
    if doors:
        raise Refused(
            "engine-unsafe",
            f"The engine's reader role can do more than read: {', '.join(doors)}.",
            "docs/reference/codes/engine-unsafe.md explains each of these rights, and how to "
            "revoke it.",
        )


def _spark_place(private: Mapping[str, Any]) -> SparkAddress:  # Any: JSON of a file of ours
    conf = tuple((str(name), str(value)) for name, value in private["conf"])
    return SparkAddress(**{**private, "conf": conf})


def _file(root: Path) -> Path:
    return root / "keys" / "engine.json"


def _private(root: Path) -> dict[str, Any]:  # Any: JSON of a file of ours
    private: dict[str, Any] = json.loads(read_private(_file(root)))
    return private


def _addresses() -> ModuleType:
    need_package("psycopg", "postgres")
    return importlib.import_module("sfumato.engines.postgres.address")
