"""The client's twin object: rows, pandas frames, and saving with a stamp of what it is."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from sfumato.client.ask_terms import Json
from sfumato.dp.refusal import Refused
from sfumato.system.optional_packages import extra_module

if TYPE_CHECKING:
    import pandas

MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # timestamp in archives, so that digests are stable


class Twin:
    """Synthetic data (a twin): its name, its files by path, and a stamp on how it was made."""

    def __init__(self, shape: Json) -> None:
        self.shape = shape
        self.name = str(shape["name"])
        self.stamp = cast("Json", shape["stamp"])
        self.files = cast("Mapping[str, str]", shape["files"])

    def rows(self, table: str | None = None) -> list[dict[str, str]]:
        """Return the rows of a table of the synthetic twin, with all values as strings.

        Args:
            table: The name of the table; None means the first one.

        Returns:
            A mapping for each row.

        Raises:
            Refused: `unknown-data-set` if the twin has no such table.
        """
        text, between = self._text_of(table)
        return list(csv.DictReader(io.StringIO(text), delimiter=between))

    def to_pandas(self, table: str | None = None, *, nulls: Sequence[str] = ()) -> pandas.DataFrame:
        """Return a table of the synthetic twin as a pandas frame, typed as in a sandboxed program.

        So codes of digits become numbers and lose their leading zeros.

        Args:
            table: The name of the table; None means the first one.
            nulls: The card's missing-value markers, in addition to those of pandas.

        Returns:
            The frame.

        Raises:
            Refused: `unknown-data-set` if the twin has no such table; `not-installed` without
                pandas.
        """
        text, between = self._text_of(table)
        module = extra_module("pandas", "frames")
        read = module.read_csv(io.StringIO(text), sep=between, na_values=list(nulls))
        return cast("pandas.DataFrame", read)

    def _text_of(self, table: str | None) -> tuple[str, str]:
        """Return a table's CSV text and its separator; None means the first table."""
        tables = {_stem(path): path for path in self.files if path.endswith((".csv", ".tsv"))}
        name = next(iter(tables)) if table is None else table
        if name not in tables:
            known = ", ".join(tables)
            raise Refused(
                "unknown-data-set",
                f"The synthetic twin has no table {name!r}.",
                f"Its tables are: {known}.",
            )
        path = tables[name]
        return self.files[path], "\t" if path.endswith(".tsv") else ","

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the synthetic twin: as one archive if the path ends with .zip, else as a folder.

        Args:
            path: Where to write it. The twin's kind is added to the name if it is missing.

        Returns:
            Where it was written.

        Raises:
            Refused: If the path exists already, or names a single table.
        """
        plain_files(self.shape)
        place = self._stamped(Path(path))
        if Path(path).suffix in (".csv", ".tsv"):
            raise Refused(
                "not-in-language",
                "A synthetic twin has several files, so it cannot be saved as one table.",
                "Give a new folder, or a file that ends in .zip.",
            )
        if place.suffix == ".zip":
            place.write_bytes(archive(self.shape))
            return place
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise Refused(
                "not-in-language",
                f"{place} already exists.",
                "Give a new folder, or a file that ends in .zip.",
            )
        for name, text in plain_files(self.shape).items():
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8", newline="")
        return place

    def _stamped(self, path: Path) -> Path:
        kind = str(self.stamp["twin"])
        if kind in path.name:
            return path
        stem = path.stem if path.suffix == ".zip" else path.name
        return path.with_name(f"{stem}.{kind}" + (".zip" if path.suffix == ".zip" else ""))

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{self.name} (version {self.stamp['version']}): {self.stamp['guarantee']}",
                f"{self.stamp['says']}.",
                f"{len(self.files)} files, seed {self.stamp.get('seed')!r}",
                *self._invented(),
                *self._errors(),
            ]
        )

    def _invented(self) -> Iterator[str]:
        """Yield lines on missing values that the card does not declare, and on people's files."""
        undeclared = cast("Json", self.stamp.get("missing_values") or {})
        if undeclared:
            names = ", ".join(map(str, cast("Sequence[str]", undeclared["not_declared"])))
            yield (
                f"The card does not say how many values are missing in {names}: "
                f"{undeclared['share']} are missing here, and real rows may lack more or fewer."
            )
        for key, says in (
            ("invented_files", "These tables of people have invented rows"),
            ("empty_files", "These files of people are empty, as the card does not describe them"),
        ):
            if key in self.stamp:
                yield f"{says}: {', '.join(cast('Sequence[str]', self.stamp[key]))}"

    def _errors(self) -> Iterator[str]:
        """Yield lines on the twin's error (distance from the real rows), if it was asked for."""
        error = cast("Json", self.stamp.get("error") or {"of": {}})
        if "refused" in error:
            yield f"its error was refused: {error['refused']}: {error['says']}"
        for table, sizes in cast("Mapping[str, Mapping[str, Json]]", error["of"]).items():
            for size, one in sizes.items():
                low, high = cast("list[float]", one["interval"])
                yield (
                    f"error of {table}, {size} columns together: {one['error']:.4f} "
                    f"({low:.4f} to {high:.4f} at 95 %), at epsilon {error['epsilon']:g}"
                )


def archive(shape: Json) -> bytes:
    """Return the synthetic twin as a zip archive with one folder.

    The same twin gives the same bytes.
    """
    made = io.BytesIO()
    files = plain_files(shape)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archived:
        archived.comment = f"{shape['name']}: made-up data".encode()
        for name, text in files.items():
            info = zipfile.ZipInfo(f"{shape['name']}/{name}", MOMENT)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archived.writestr(info, text)
    return made.getvalue()


def plain_files(shape: Json) -> Mapping[str, str]:
    """Return the synthetic twin's files by path; refuse unsafe paths that the server chose."""
    files = cast("Mapping[str, str]", shape["files"])
    said = [str(shape["name"]), str(cast("Json", shape["stamp"])["twin"])]
    if not all(map(_is_plain, [*files, *said])) or any("/" in one for one in said):
        raise Refused(
            "bad-request",
            "A file of the synthetic twin has a name that could write outside the chosen "
            "folder, so nothing was saved.",
            "Tell the data set's owner.",
        )
    return files


def _is_plain(path: str) -> bool:
    """Return True if the path stays inside its folder on every operating system."""
    parts = path.split("/")
    return not set(parts) & {"", ".", ".."} and not set(path) & {"\\", ":", "\0"}


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]
