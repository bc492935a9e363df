"""Create the PostgreSQL reader role, which can read the tables of one schema and nothing else.

Limits that an operator has to know:

- Only a superuser can set `log_statement`, `log_min_duration_statement` and the like. They are set
  for the role if the owner is allowed to. A user who can change the server's configuration can
  log bound parameters, which include the secret salt. The reader's sessions set what they can.
- Every role may read the catalogues (names and sizes of tables, never values) and sleep.
  statement_timeout and the engine's own deadline end a sleep.
- REVOKE FROM PUBLIC applies to the whole database: give sfumato a database of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

_LOGS: Final = {  # only a superuser can set these
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_min_duration_sample": "-1",
    "log_duration": "off",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_parameter_max_length": "0",
    "log_transaction_sample_rate": "0",
    "log_temp_files": "-1",
    "log_lock_waits": "off",
}
_OWN: Final = {
    "default_transaction_read_only": "on",
    "log_parameter_max_length_on_error": "0",
    "statement_timeout": "120000",
    "idle_in_transaction_session_timeout": "60000",
}
_ATTRIBUTES: Final = (
    "LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOINHERIT NOREPLICATION NOBYPASSRLS"
    " CONNECTION LIMIT 20"
)
# Functions with side effects or file access that every role may call by default.
_DEEDS: Final = """
SELECT format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid))
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'pg_catalog' AND p.prokind = 'f' AND (
  p.proname ~ '^(lo_|pg_advisory|pg_try_advisory|pg_sleep|pg_notify|pg_read|pg_ls|pg_stat_file)'
  OR p.proname IN ('loread', 'lowrite', 'query_to_xml',
    'query_to_xmlschema', 'query_to_xml_and_xmlschema',
    'table_to_xml', 'table_to_xml_and_xmlschema', 'cursor_to_xml', 'schema_to_xml',
    'database_to_xml', 'pg_export_snapshot', 'pg_cancel_backend', 'pg_terminate_backend'))
"""


_WELCOME: Final[tuple[LiteralString, ...]] = (
    "CREATE SCHEMA IF NOT EXISTS {place}",
    "REVOKE ALL ON SCHEMA {place} FROM PUBLIC",
    "GRANT USAGE ON SCHEMA {place} TO {reader}",
)


def make_reader(owner: str, schema: str, role: str, password: str | None = None) -> tuple[str, ...]:
    """Create the schema and the read-only role for queries (the reader).

    Return the restrictions that the owner may not set.
    """
    with psycopg.connect(owner, autocommit=True) as link:
        link.execute("SET log_parameter_max_length_on_error = 0")
        for statement in _needed(link, schema, role, password):
            link.execute(statement)
        return tuple(name for name, text in _wanted(link, role) if not _done(link, text))


def welcome_reader(owner: str, schema: str, role: str) -> None:
    """Create the schema and give a reader role that exists already access to it."""
    with psycopg.connect(owner, autocommit=True) as link:
        for text in _WELCOME:
            link.execute(_place(text, schema, role))


def unmake_reader(owner: str, schema: str, role: str, *, with_role: bool) -> None:
    """Drop the empty schema, and the reader role if `with_role`; used after a failed `init`."""
    with psycopg.connect(owner, autocommit=True) as link:
        row = link.execute("SELECT current_database()").fetchone()
        database = sql.Identifier(str(row[0]) if row else "")
        link.execute(_place("DROP SCHEMA IF EXISTS {place}", schema, role))
        if with_role:
            text = sql.SQL("REVOKE ALL ON DATABASE {} FROM {}")
            link.execute(text.format(database, sql.Identifier(role)))
            link.execute(_place("DROP ROLE IF EXISTS {reader}", schema, role))


def _place(text: LiteralString, schema: str, role: str) -> sql.Composed:
    return sql.SQL(text).format(place=sql.Identifier(schema), reader=sql.Identifier(role))


def _needed(
    link: psycopg.Connection[Any], schema: str, role: str, password: str | None
) -> Iterator[sql.Composed]:
    reader = sql.Identifier(role)
    known = link.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    verb = sql.SQL("CREATE ROLE {} ") if known is None else sql.SQL("ALTER ROLE {} ")
    yield verb.format(reader) + sql.SQL(_ATTRIBUTES) + _password(link, role, password)
    yield from (_place(text, schema, role) for text in _WELCOME)
    for name, value in _OWN.items():
        yield sql.SQL("ALTER ROLE {} SET {} = {}").format(
            reader, sql.Identifier(name), sql.Literal(value)
        )


def _password(link: psycopg.Connection[Any], role: str, password: str | None) -> sql.Composed:
    """Return the PASSWORD clause with a SCRAM verifier, so the server never sees the password."""
    if password is None:
        return sql.Composed([])
    check = link.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256")
    return sql.SQL(" PASSWORD {}").format(sql.Literal(check.decode()))


def _wanted(link: psycopg.Connection[Any], role: str) -> Iterator[tuple[str, sql.Composed]]:
    """Yield the restrictions of the reader that may need a superuser: name and SQL statement."""
    reader = sql.Identifier(role)
    for name, value in _LOGS.items():
        text = sql.SQL("ALTER ROLE {} SET {} = {}")
        yield name, text.format(reader, sql.Identifier(name), sql.Literal(value))
    row = link.execute("SELECT current_database()").fetchone()
    database = sql.Identifier(str(row[0]) if row else "")
    yield "database", sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database)
    yield "connect", sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, reader)
    yield "public", sql.SQL("REVOKE ALL ON SCHEMA public FROM PUBLIC").format()
    yield "plpgsql", sql.SQL("REVOKE ALL ON LANGUAGE plpgsql FROM PUBLIC").format()
    for (function,) in link.execute(_DEEDS).fetchall():
        yield function, sql.SQL(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC").format()


def _done(link: psycopg.Connection[Any], text: sql.Composed) -> bool:
    try:
        link.execute(text)
    except psycopg.Error:  # not allowed; the caller reports the name, never the server's text
        return False
    return True
