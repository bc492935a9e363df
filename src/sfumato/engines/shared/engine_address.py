"""Parse an engine address: duckdb, PostgreSQL or Spark.

It does no I/O. An error never quotes the address, because the address may contain a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

from sfumato.dp.refusal import Refused

_POSTGRES: Final = re.compile(r"postgres(ql)?://|\s*[a-z_]+\s*=", re.ASCII)
_SPARK: Final = re.compile(
    r"(?:(?P<local>local(?:\[(?:[1-9][0-9]{0,3}|\*)\])?)"
    r"|spark://(?::(?P<secret>[^@/?#]+)@)?(?P<host>[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5}))"
    r"(?:\?(?P<more>.*))?",
    re.ASCII,
)
# Settings that an owner may change: they affect resources only, not privacy or exactness.
_SETTINGS: Final = frozenset(
    {
        "spark.cores.max", "spark.driver.memory", "spark.executor.cores", "spark.executor.memory",
        "spark.sql.adaptive.enabled", "spark.sql.codegen.factoryMode",
        "spark.sql.codegen.wholeStage", "spark.sql.files.minPartitionNum",
        "spark.sql.shuffle.partitions",
    }
)  # fmt: skip
_VALUE: Final = re.compile(r"[A-Za-z0-9_.]{1,40}", re.ASCII)


@dataclass(frozen=True)
class PostgresAddress:
    """Address of a PostgreSQL server, with the role that creates tables."""

    url: str = field(repr=False)


@dataclass(frozen=True)
class SparkAddress:
    """Address and settings of the Spark driver or cluster that runs the queries."""

    master: str = "local[*]"
    host: str = "127.0.0.1"  # the driver binds to this address only
    secret: str | None = field(
        default=None, repr=False
    )  # spark.authenticate.secret of a standalone cluster
    conf: tuple[tuple[str, str], ...] = ()  # further Spark settings


def read_address(text: str) -> PostgresAddress | SparkAddress | None:
    """Parse an engine address; return None for the embedded DuckDB; refuse an invalid address."""
    if text == "duckdb":
        return None
    if _POSTGRES.match(text):
        return PostgresAddress(text)
    found = _SPARK.fullmatch(text)
    if found is None:
        raise Refused(
            "engine-unavailable",
            "The engine's address has no form that sfumato knows.",
            "Give duckdb, postgresql://OWNER@HOST/DATABASE, local[N] or spark://:SECRET@HOST:PORT.",
        )
    return _spark(found)


def _spark(found: re.Match[str]) -> SparkAddress:
    more = dict(parse_qsl(found["more"] or "", keep_blank_values=True))
    host = more.pop("driver", "127.0.0.1")
    secret = None if found["secret"] is None else unquote(found["secret"])
    odd = [n for n, v in more.items() if n not in _SETTINGS or not _VALUE.fullmatch(v)]
    if odd or not _VALUE.fullmatch(host) or not (secret or "").isprintable():
        raise Refused(
            "engine-unavailable",
            "A setting of Spark is not allowed, or its value is not valid.",
            "Correct the settings after the question mark. docs/explanation/sharp-edges.md lists "
            "the allowed ones.",
        )
    conf = tuple(sorted(more.items()))
    if found["local"]:
        return SparkAddress(found["local"], conf=conf)
    if secret is None:
        raise Refused(
            "engine-unsafe",
            "Without a secret, anybody could join the Spark cluster and read rows.",
            "Set spark.authenticate.secret on master and workers, and give spark://:SECRET@HOST:PORT.",
        )
    master = f"spark://{found['host']}:{found['port']}"
    return SparkAddress(master, host, secret, conf)
