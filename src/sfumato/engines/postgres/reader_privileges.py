"""Find excess privileges of the PostgreSQL reader role: all beyond reading the prepared tables.

The check runs in the driver process, on the same connection as the queries and before any of them.
It looks at the effective privileges on all objects, so it also finds an unexpected grant.

It ignores what every role may do and only a superuser can revoke: sleep, advisory locks, empty
large objects (docs/explanation/sharp-edges.md).
"""

from __future__ import annotations

from typing import Any, Final

import psycopg

_HIDDEN: Final = "pg_authid", "pg_largeobject", "pg_statistic", "pg_user_mapping", "pg_subscription"
FILES: Final = (
    r"^(pg_read_file|pg_read_binary_file|pg_ls_.*|pg_stat_file|pg_file_.*|lo_import|lo_export"
    r"|pg_reload_conf|pg_rotate_logfile|pg_logdir_ls)$"
)
_OF_THE_SERVER: Final = (
    "n.nspname IN ('pg_catalog', 'information_schema') OR n.nspname ~ '^pg_(toast|temp)'"
)
_SEEN: Final = "c.relkind IN ('r', 'p', 'v', 'm', 'f')"
# every role may update pg_settings; that is SET, and changes only the role's own session
_WRITES: Final = f"""EXISTS (SELECT FROM pg_class c WHERE {_SEEN}
    AND c.oid <> 'pg_catalog.pg_settings'::regclass
    AND (has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
      OR has_any_column_privilege(c.oid, 'INSERT, UPDATE, REFERENCES')))
  OR EXISTS (SELECT FROM pg_class c WHERE CASE WHEN c.relkind = 'S'
    THEN has_sequence_privilege(c.oid, 'USAGE, UPDATE') ELSE false END)"""
_MINE: Final = "(SELECT oid FROM pg_roles WHERE rolname = session_user)"

# name -> SQL condition, true if the role has the excess privilege; %(role)s and %(schema)s are ours
EXCESS_PRIVILEGES: Final[dict[str, str]] = {
    "another-role": "session_user <> %(role)s OR current_user <> %(role)s",
    "superuser": f"(SELECT rolsuper OR rolbypassrls OR rolreplication FROM pg_roles"
    f" WHERE oid = {_MINE})",
    "create-roles": f"(SELECT rolcreaterole FROM pg_roles WHERE oid = {_MINE})",
    "create-databases": f"(SELECT rolcreatedb FROM pg_roles WHERE oid = {_MINE})",
    "member-of-roles": f"EXISTS (SELECT FROM pg_auth_members WHERE member = {_MINE})",
    "owner-of-something": "EXISTS (SELECT FROM pg_shdepend WHERE deptype = 'o'"
    f" AND refclassid = 'pg_authid'::regclass AND refobjid = {_MINE})",
    "create-in-database": "has_database_privilege(current_database(), 'CREATE')",
    "temporary-tables": "has_database_privilege(current_database(), 'TEMPORARY')",
    "create-in-schema": "EXISTS (SELECT FROM pg_namespace n"
    " WHERE has_schema_privilege(n.oid, 'CREATE'))",
    "write": _WRITES,
    "other-schemas": f"EXISTS (SELECT FROM pg_namespace n WHERE NOT ({_OF_THE_SERVER})"
    " AND n.nspname <> %(schema)s AND has_schema_privilege(n.oid, 'USAGE'))",
    "hidden-catalogues": "EXISTS (SELECT FROM pg_class c JOIN pg_namespace n"
    " ON n.oid = c.relnamespace WHERE n.nspname = 'pg_catalog' AND c.relname = ANY(%(hidden)s)"
    " AND has_table_privilege(c.oid, 'SELECT'))",
    "files": "EXISTS (SELECT FROM pg_proc p WHERE p.proname ~ %(files)s"
    " AND has_function_privilege(p.oid, 'EXECUTE'))",
    "functions-of-others": "EXISTS (SELECT FROM pg_proc p WHERE p.prosecdef"
    " AND has_schema_privilege(p.pronamespace, 'USAGE')"
    " AND has_function_privilege(p.oid, 'EXECUTE'))",
    "other-servers": "EXISTS (SELECT FROM pg_foreign_server s"
    " WHERE has_server_privilege(s.oid, 'USAGE'))",
}


def excess_privileges(link: psycopg.Connection[Any], role: str, schema: str) -> tuple[str, ...]:
    """Return the privileges of a connection's role beyond reading the prepared tables."""
    asked = ", ".join(f"coalesce(({condition}), true)" for condition in EXCESS_PRIVILEGES.values())
    known = {"role": role, "schema": schema, "hidden": list(_HIDDEN), "files": FILES}
    with link.cursor() as cursor:
        found = cursor.execute(f"SELECT {asked}".encode(), known).fetchone() or ()
    return tuple(name for name, is_open in zip(EXCESS_PRIVILEGES, found, strict=True) if is_open)
