"""Self-test of the DuckDB lockdown: statements that must fail, tried before any query is served.

No text from a user ever reaches DuckDB, so the lockdown is a second line of defence. Each probe is
one statement on a locked connection over an empty table. A probe succeeds if its statement runs
and, for a SELECT, also returns a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from sfumato.engines.shared.locked_connection import Room, lock_statements
from sfumato.system.temporary_folders import temporary_folder

# name -> statement; {f} is a folder that holds canary.csv, .txt, .json, .parquet and .duckdb.
PROBES: Final[Mapping[str, str]] = {
    "read_csv": "SELECT * FROM read_csv('{f}/canary.csv')",
    "read_csv_all_varchar": "SELECT * FROM read_csv('{f}/canary.csv', all_varchar = true)",
    "read_csv_glob": "SELECT * FROM read_csv('{f}/*.csv')",
    "read_text": "SELECT content FROM read_text('{f}/canary.txt')",
    "read_blob": "SELECT content FROM read_blob('{f}/canary.txt')",
    "read_json": "SELECT * FROM read_json('{f}/canary.json')",
    "read_json_objects": "SELECT * FROM read_json_objects('{f}/canary.json')",
    "read_ndjson": "SELECT * FROM read_ndjson('{f}/canary.json')",
    "read_parquet": "SELECT * FROM read_parquet('{f}/canary.parquet')",
    "parquet_scan": "SELECT * FROM parquet_scan('{f}/canary.parquet')",
    "parquet_metadata": "SELECT * FROM parquet_metadata('{f}/canary.parquet')",
    "parquet_schema": "SELECT * FROM parquet_schema('{f}/canary.parquet')",
    "parquet_file_metadata": "SELECT * FROM parquet_file_metadata('{f}/canary.parquet')",
    "sniff_csv": "SELECT * FROM sniff_csv('{f}/canary.csv')",
    "glob": "SELECT * FROM glob('{f}/*')",
    "file_as_table_csv": "SELECT * FROM '{f}/canary.csv'",
    "file_as_table_parquet": "SELECT * FROM '{f}/canary.parquet'",
    "file_as_table_json": "SELECT * FROM '{f}/canary.json'",
    "process_environment": "SELECT content FROM read_blob('/proc/self/environ')",
    "process_memory_map": "SELECT content FROM read_text('/proc/self/maps')",
    "passwords": "SELECT content FROM read_text('/etc/passwd')",
    "query_function": "SELECT * FROM query('SELECT content FROM read_text(''{f}/canary.txt'')')",
    "query_table": "SELECT * FROM query_table('{f}/canary.csv')",
    "copy_to_csv": "COPY empty TO '{f}/out.csv'",
    "copy_to_parquet": "COPY empty TO '{f}/out.parquet' (FORMAT parquet)",
    "copy_to_json": "COPY empty TO '{f}/out.json' (FORMAT json)",
    "copy_to_stdout": "COPY (SELECT 1) TO '/dev/stdout'",
    "copy_from": "COPY empty FROM '{f}/canary.csv'",
    "export_database": "EXPORT DATABASE '{f}/exported'",
    "import_database": "IMPORT DATABASE '{f}/exported'",
    "attach_new": "ATTACH '{f}/new.duckdb' AS new_one",
    "attach_existing": "ATTACH '{f}/canary.duckdb' AS canary (READ_ONLY)",
    "attach_sqlite": "ATTACH '{f}/canary.sqlite' AS lite (TYPE sqlite)",
    "attach_postgres": "ATTACH 'host=127.0.0.1' AS pg (TYPE postgres)",
    "attach_http": "ATTACH 'http://127.0.0.1:9/x.duckdb' AS web",
    "read_http": "SELECT * FROM read_csv('http://127.0.0.1:9/x.csv')",
    "read_s3": "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "install_extension": "INSTALL httpfs",
    "install_from_community": "INSTALL h3 FROM community",
    "install_from_file": "INSTALL '{f}/evil.duckdb_extension'",
    "load_extension": "LOAD httpfs",
    "load_extension_file": "LOAD '{f}/evil.duckdb_extension'",
    "update_extensions": "UPDATE EXTENSIONS (httpfs)",
    "getenv": "SELECT getenv('PATH')",
    "create_secret": "CREATE SECRET one (TYPE s3, KEY_ID 'x', SECRET 'y')",
    "create_persistent_secret": "CREATE PERSISTENT SECRET two (TYPE http, BEARER_TOKEN 'x')",
    "secrets": "SELECT * FROM duckdb_secrets()",
    "which_secret": "SELECT * FROM which_secret('s3://bucket/x', 's3')",
    "python_array": "SELECT * FROM HOST_ARRAY",
    "python_columns": "SELECT * FROM HOST_COLUMNS",
    "set_external_access": "SET enable_external_access = true",
    "set_threads": "SET threads = 1",
    "set_memory": "SET memory_limit = '64GB'",
    "reset_memory": "RESET memory_limit",
    "set_temp_directory": "SET temp_directory = '{f}'",
    "set_allowed_paths": "SET allowed_paths = ['{f}/canary.csv']",
    "set_allowed_directories": "SET allowed_directories = ['{f}']",
    "set_lock": "SET lock_configuration = false",
    "reset_lock": "RESET lock_configuration",
    "set_replacements": "SET python_enable_replacements = true",
    "set_autoload": "SET autoload_known_extensions = true",
    "set_optimizers": "SET disabled_optimizers = ''",
    "set_home": "SET home_directory = '{f}'",
    "set_secrets_folder": "SET secret_directory = '{f}'",
    "set_extension_folder": "SET extension_directory = '{f}'",
    "set_log_file": "SET log_query_path = '{f}/log'",
    "set_profile_file": "SET profiling_output = '{f}/profile'",
    "pragma_threads": "PRAGMA threads = 1",
    "pragma_memory": "PRAGMA memory_limit = '64GB'",
    "pragma_profiling": "PRAGMA enable_profiling = 'json'",
    "enable_logging": "CALL enable_logging(storage = 'file', storage_path = '{f}/logs')",
    "checkpoint_elsewhere": "CHECKPOINT canary",
    "spilled_files": "SELECT * FROM duckdb_temporary_files()",
    "log_entries": "SELECT * FROM duckdb_logs",
}


def open_probes(room: Room) -> Iterator[str]:
    """Run all lockdown probes; yield the names of those that succeeded, which must be none."""
    with temporary_folder() as place:
        _plant(place)
        folder, table = str(place), str(place / "empty.duckdb")
        for name, statement in PROBES.items():  # one connection each, so that they are independent
            if _gets_through(table, room, statement.replace("{f}", folder), folder):
                yield name


def _plant(folder: Path) -> None:
    """Create the files that the probes try to access, by a connection without lockdown."""
    for name, text in (("csv", "a\n1\n"), ("txt", "canary"), ("json", '{"a": 1}\n')):
        (folder / f"canary.{name}").write_text(text, encoding="ascii")
    with duckdb.connect(str(folder / "canary.duckdb")) as connection:
        connection.execute("CREATE TABLE canary AS SELECT 1 AS a")
        connection.execute(f"COPY canary TO '{folder}/canary.parquet' (FORMAT parquet)")
        connection.execute(f"EXPORT DATABASE '{folder}/exported'")
    with duckdb.connect(str(folder / "empty.duckdb")) as connection:
        connection.execute("CREATE TABLE empty (a BIGINT)")


def _gets_through(table: str, room: Room, statement: str, folder: str) -> bool:
    HOST_ARRAY = np.arange(3)  # bait: an unlocked DuckDB resolves table names to Python variables
    HOST_COLUMNS = {"a": HOST_ARRAY}  # noqa: F841
    with _harmless(table, folder) as connection:
        for lock in lock_statements(room):
            connection.execute(lock)
        try:
            found = connection.execute(statement).fetchall()
        except (duckdb.Error, RuntimeError, ValueError):
            return False
    return bool(found) or not statement.startswith("SELECT")


def _harmless(table: str, folder: str) -> duckdb.DuckDBPyConnection:
    """Open a table so that a successful probe writes to our folder, not to a home directory."""
    return duckdb.connect(
        table,
        read_only=True,
        config={"secret_directory": folder, "extension_directory": folder},
    )
