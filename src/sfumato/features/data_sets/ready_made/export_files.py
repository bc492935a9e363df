"""Find and read the files of an export: a folder or a zip file, plain or compressed text."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.system.csv_writer import write_rows
from sfumato.system.row_files import PARQUET, parquet_files
from sfumato.system.temporary_folders import temporary_folder
from sfumato.system.zip_listing import opened_zip

TEXTS: Final = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_PACKED: Final = (".csv.zst", ".tsv.zst", ".csv.zip")
_SEPARATORS: Final = ("\t", ",", ";", "|")
_BOMS: Final = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_ASCII: Final = re.compile("[\\x00-\\x7f]+")
_NO_LETTER: Final = re.compile("[\\udc80-\\udcff]")  # a byte that is not UTF-8
_PIECE: Final = 1 << 20
_SMALL: Final = 1 << 30  # bytes to which any zip file may unpack
_RATIO: Final = 200  # times its size, to which a larger one may
_LONGEST: Final = 1 << 24  # characters of a cell; a note of a record may be long


@contextmanager
def opened_export(source: str) -> Iterator[tuple[Path, Path]]:
    """Yield an export's folder, and a private folder for copies that exists during the block.

    A zip file is unpacked into the private folder.
    """
    with temporary_folder() as work:
        place = Path(source)
        if place.is_dir():
            yield place, work
        elif place.is_file() and zipfile.is_zipfile(place):
            yield _unzipped(place, work / "unpacked"), work
        else:
            raise Refused(
                "source-unreadable",
                f"{source!r} is neither a folder nor a zip file.",
                "Give the folder of the export, or its zip file.",
            )


def _unzipped(place: Path, target: Path) -> Path:
    """Unpack the files of a zip; the names of its folders are not kept."""
    target.mkdir(mode=0o700)
    wrong = ""
    try:
        with opened_zip(str(place)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > max(_SMALL, _RATIO * place.stat().st_size):
                raise zipfile.LargeZipFile
            for entry in archive.infolist():
                name = PurePosixPath(entry.filename.replace("\\", "/")).name
                if entry.is_dir() or name.startswith(".") or "__MACOSX" in entry.filename:
                    continue
                with archive.open(entry) as inner, (target / name).open("xb") as copy:
                    shutil.copyfileobj(inner, copy)
    except FileExistsError:
        wrong = "has two files of the same name in different folders"
    except zipfile.LargeZipFile:
        wrong = f"unpacks to more than a gigabyte and {_RATIO} times its size"
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, NotImplementedError) as error:
        wrong = f"cannot be unpacked ({type(error).__name__})"
    if wrong:
        raise Refused(
            "source-unreadable",
            f"The zip file {wrong}.",
            "Unpack it yourself, and give the folder.",
        )
    return target


def files_of(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the files below a folder with one of these suffixes, sorted; hidden ones are not."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path
        for path in found
        if path.name.casefold().endswith(tuple(suffixes))
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]


def tables_of(folder: Path) -> dict[str, Path]:
    """Return the files of tables below a folder by the table's name in lower case.

    A table is a text file, a Parquet file, or a folder of Parquet files. Refuse a table that is
    there twice.
    """
    found: dict[str, Path] = {}
    folders = [path for path in sorted(folder.rglob("*")) if path.is_dir() and _is_table(path)]
    inside = [path for path in files_of(folder, (*TEXTS, *PARQUET)) if path.parent not in folders]
    packed = files_of(folder, _PACKED)
    if packed:
        raise Refused(
            "source-unreadable",
            f"{packed[0].name} is compressed in a way that is not read in an export.",
            "Unpack it, or compress it as .csv.gz.",
        )
    for path in (*folders, *inside):
        name = path.name.partition(".")[0].casefold()
        if name in found:
            raise Refused(
                "source-unreadable",
                f"The export has the table {name!r} twice: {found[name].name} and {path.name}.",
                "Remove one of them from the folder.",
            )
        found[name] = path
    return found


def _is_table(folder: Path) -> bool:
    """Return True if all files in a folder are Parquet files, as Spark writes a table."""
    files = [path for path in folder.iterdir() if not path.name.startswith((".", "_"))]
    is_all = bool(files) and all(path.name.casefold().endswith(PARQUET) for path in files)
    return is_all and (folder.name.casefold().endswith(PARQUET) or files[0].name.startswith("part"))


def column_names(path: Path) -> list[str]:
    """Return the column names of a table's file, as they are written there; no row is read."""
    if path.is_dir() or path.name.casefold().endswith(PARQUET):
        return _parquet_names(path)
    return next(records(path), [])


def _parquet_names(path: Path) -> list[str]:
    import duckdb  # only for Parquet

    files = [str(one) for one in parquet_files(str(path))] or [str(path)]
    try:
        found = duckdb.execute(
            "SELECT DISTINCT name FROM parquet_schema(?) WHERE type IS NOT NULL", [files[0]]
        ).fetchall()
    except duckdb.Error:
        found = []
    if not found:
        raise unreadable(path)
    return [str(name) for (name,) in found]


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, also of a compressed one; refuse a damaged one.

    The encoding is UTF-8, UTF-16 or Windows-1252.
    """
    wrong = False
    try:
        with (
            _binary(path) as file,
            io.TextIOWrapper(file, encoding=encoding_of(path), newline="") as text,
        ):
            yield from text
    except (OSError, EOFError, UnicodeError, zlib.error):
        wrong = True  # the error may have the text, so the refusal is raised outside of it
    if wrong:
        raise unreadable(path)


def _binary(path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.open(path) if path.name.casefold().endswith(".gz") else path.open("rb")


def encoding_of(path: Path) -> str:
    """Return the encoding of a text file: UTF-8, UTF-16, or else Windows-1252.

    Refuse a file that is mostly UTF-8 and has other bytes, too. Read as Windows-1252, its words
    would differ from those of the card, and count as none of its keys.
    """
    with _binary(path) as file:
        start = file.read(2)
        if start in _BOMS:
            return _BOMS[start]
    with _binary(path) as file:
        checked = codecs.getincrementaldecoder("utf-8")()
        try:
            while piece := file.read(_PIECE):
                checked.decode(piece)
            checked.decode(b"", final=True)
        except UnicodeDecodeError:
            is_utf8 = False
        else:
            is_utf8 = True
    if is_utf8:
        return "utf-8-sig"
    if _is_mixed(path):
        raise Refused(
            "source-unreadable",
            f"{path.name} is UTF-8 in most places and has another encoding in others.",
            "Export it again, or save it as UTF-8 throughout.",
        )
    return "cp1252"


def _is_mixed(path: Path) -> bool:
    """Return True if a file that is not UTF-8 has more letters in UTF-8 than other bytes.

    In a file of Windows-1252, bytes that look like a letter in UTF-8 are rare.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    letters = others = 0
    with _binary(path) as file:
        while piece := file.read(_PIECE):
            text = _ASCII.sub("", decoder.decode(piece))
            foreign = len(_NO_LETTER.findall(text))
            letters, others = letters + len(text) - foreign, others + foreign
    return letters > others


def records(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a text file, first its names; the first line shows the separator."""
    lines = text_lines(path)
    first = next(lines, "")
    separator = max(_SEPARATORS, key=first.count)
    wrong = False
    try:
        head = next(csv.reader([first], delimiter=separator), [])
        yield [name.strip() for name in head]
        yield from (row for row in _with_long_cells(csv.reader(lines, delimiter=separator)) if row)
    except csv.Error:
        wrong = True
    if wrong:
        raise unreadable(path)


def _with_long_cells(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader with a higher limit of a cell's length.

    The limit belongs to the whole process, so it is raised only while a row is read.
    """
    while True:
        before = csv.field_size_limit(_LONGEST)
        try:
            row = next(rows)
        except StopIteration:
            return
        finally:
            csv.field_size_limit(before)
        yield row


def write_table(path: Path, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table for the vault as tab-separated text; return its path."""
    with path.open("w", encoding="utf-8", newline="") as file:
        write_rows(file, [names], "\t")
        write_rows(file, rows, "\t")
    return str(path)


def chosen(wanted: Mapping[str, object], names: Sequence[str]) -> dict[str, str]:
    """Return which of the wanted columns a file has: wanted name -> its name in the file."""
    there = {name.strip().casefold(): name for name in names}
    return {name: there[name.casefold()] for name in wanted if name.casefold() in there}


def unreadable(path: Path) -> Refused:
    """Return the refusal of a file that cannot be read."""
    return Refused(
        "source-unreadable",
        f"{path.name} cannot be read as the file of a table.",
        "Export it again, as UTF-8 text or Parquet, and check that the file is complete.",
    )
