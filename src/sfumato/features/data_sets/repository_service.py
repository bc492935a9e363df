"""DataLad data sets (git-annex repositories) as sources: the vault fetches them itself.

The operator allows a location by a connection file, whose address begins with `datalad+https://`.
An owner names the connection and a data set below that address. The clone is kept for a day if
fetching or adding fails, so that the next try gets only the contents that are missing.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sfumato.dp.refusal import Refused
from sfumato.features.data_sets.fetched_folder_service import FetchedFolders
from sfumato.features.data_sets.folder_archive import ROWS, unreadable
from sfumato.system.git_annex import (
    Repository,
    content_size,
    is_absent,
    is_installed,
    is_loopback_host,
)
from sfumato.vault.card.bids_patterns import is_listed

PREFIX: Final = "datalad+"
_NAME: Final = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*/)*[A-Za-z0-9][A-Za-z0-9._-]*")
_ANNEX: Final = Path(".git", "annex", "objects")


def is_repository(address: str) -> bool:
    """Return True if a connection's address is a place of DataLad data sets, not a database."""
    return address.startswith(PREFIX)


def check_address(address: str) -> None:
    """Refuse a place that is not https; plain http is for this machine alone."""
    parts = urlsplit(address.removeprefix(PREFIX))
    host = parts.hostname or ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback_host(host))
    if not (is_safe and host) or parts.query or parts.fragment or "@" in parts.netloc:
        raise Refused(
            "engine-unavailable",
            "The connection's address is not a place of DataLad data sets.",
            "Give datalad+https://HOST/PATH, without a password.",
        )
    if not is_installed():
        raise Refused(
            "engine-unavailable",
            "This machine has no git-annex, which fetches DataLad data sets.",
            "Install the package git-annex, or remove the connection.",
        )


def url_of(address: str, name: str) -> str:
    """Return the URL of a data set below a connection's address; refuse any other place."""
    if not _NAME.fullmatch(name):
        raise Refused(
            "source-unreadable",
            "This is not the name of a data set: letters, digits, '.', '_', '-', and '/' between.",
            "Name the data set by its path below the address of the connection.",
        )
    return f"{address.removeprefix(PREFIX).rstrip('/')}/{name}"


@dataclass(frozen=True)
class Repositories:
    """The DataLad data sets that one vault is fetching on this machine."""

    folders: FetchedFolders

    @contextmanager
    def draft(self, owner: str, url: str) -> Iterator[Path]:
        """Yield a clone without contents, beside a folder `tree` that has participants.tsv."""
        with self.folders.lock:
            place = self._cloned(owner, url)
            self._get(place, url, [ROWS])
            self._copy(place, [ROWS] if (place / "clone" / ROWS).exists() else [])
            yield place / "clone"

    @contextmanager
    def fetched(self, owner: str, url: str, patterns: tuple[str, ...]) -> Iterator[str]:
        """Yield a folder with the files that a card with these patterns lists.

        Delete it at the end; keep the clone if the block fails.
        """
        with self.folders.lock:
            place = self._cloned(owner, url)
            listed = [path for path in files_of(place / "clone") if is_listed(path, patterns)]
            self._get(place, url, listed)
            try:
                yield self._copy(place, listed)
            finally:
                shutil.rmtree(place / "tree", ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)

    def _copy(self, place: Path, paths: list[str]) -> str:
        """Copy files out of the clone; return the folder."""
        clone = place / "clone"
        return self.folders.copied(place, [(path, clone / path) for path in paths], clone)

    def sweep(self) -> None:
        """Delete clones that are older than a day, unless one is being fetched."""
        self.folders.sweep()

    def _cloned(self, owner: str, url: str) -> Path:
        """Return the folder of a whole clone: that of an earlier try, or a new one."""
        place = self.folders.place(owner, url)
        if (place / "whole").exists():
            return place
        self.folders.begin(place)
        if not Repository(url, place / "clone").make(self.folders.most):
            shutil.rmtree(place, ignore_errors=True)
            raise unreadable(
                "The data set could not be cloned.",
                "Check its name. Ask the operator whether the service can reach it.",
            )
        (place / "whole").touch()
        return place

    def _get(self, place: Path, url: str, paths: list[str]) -> None:
        """Get the contents of these files that the clone lacks, within the limits."""
        clone = place / "clone"
        absent = [path for path in paths if (clone / path).is_symlink() or (clone / path).exists()]
        absent = [path for path in absent if is_absent(clone / path)]
        sizes = [content_size(clone / path) for path in absent]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            raise unreadable(
                f"{len(sizes) - len(known)} files are broken links, or git-annex does not know "
                "their size.",
                "Correct them in the data set, for example with `git annex migrate`.",
            )
        self.folders.check_room(known)
        if absent and not Repository(url, clone).get(absent, self.folders.most):
            raise unreadable(
                f"The contents of {len(absent)} files could not all be fetched from the data "
                "set's own server.",
                "Try again within a day: what was fetched is kept. Check that the server has all "
                "contents (`git annex find --not --in origin` in a clone).",
            )


def files_of(clone: Path) -> list[str]:
    """Return the paths of all files and links of a clone but hidden ones."""
    found = (path for path in clone.rglob("*") if path.is_symlink() or path.is_file())
    names = (path.relative_to(clone) for path in found)
    return sorted(p.as_posix() for p in names if not any(n.startswith(".") for n in p.parts))
