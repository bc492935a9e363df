"""Convert an Arrow or Feather file to Parquet, which DuckDB reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sfumato.engines.ingest.source_errors import unreadable
from sfumato.system.optional_packages import extra_module

_ROWS = 1 << 17  # rows of one piece in memory


def arrow_to_parquet(source: str, target: Path, most: int | None) -> None:
    """Write an Arrow file's rows as Parquet, at most `most` of them."""
    arrow = extra_module("pyarrow", "files")
    parquet = extra_module("pyarrow.parquet", "files")
    try:
        with arrow.memory_map(source) as file:
            reader = _reader(arrow, file)
            schema = _plain(arrow, reader.schema)
            with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
                left = most
                for batch in _batches(reader):
                    piece = batch if left is None else batch.slice(0, left)
                    writer.write_table(arrow.Table.from_batches([piece]).cast(schema))
                    left = None if left is None else left - piece.num_rows
                    if left == 0:
                        return
    except (arrow.ArrowException, ValueError, NotImplementedError):
        raise unreadable(
            "The file is no Arrow or Feather file that can be read.",
            "Write it again with pyarrow.feather.write_feather, or as Parquet.",
        ) from None


def _reader(arrow: Any, file: Any) -> Any:
    """Return a reader of batches: of the file format, of the stream format, or of Feather 1."""
    from pyarrow import feather, ipc

    start = file.read(6)
    file.seek(0)
    if start == b"ARROW1":
        return ipc.open_file(file)
    if start[:4] == b"FEA1":
        return feather.read_table(file).to_reader(_ROWS)
    return ipc.open_stream(file)


def _batches(reader: Any) -> Any:
    if hasattr(reader, "num_record_batches"):
        return (reader.get_batch(place) for place in range(reader.num_record_batches))
    return reader


def _plain(arrow: Any, schema: Any) -> Any:
    """Return the schema with plain values in place of dictionaries."""
    fields = []
    for field in schema:
        kind = field.type
        if arrow.types.is_dictionary(kind):
            kind = kind.value_type
        fields.append(field.with_type(kind))
    return arrow.schema(fields)
