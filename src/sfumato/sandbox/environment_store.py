"""Store of programs' own environments (wheels, folders, images) on this machine.

The owner adds an environment once; afterwards it is read-only. Each environment is a folder, which
everyone may read and nobody may change. Its name is the digest of its source. A content digest of
all its files is stored with it. Adding an environment imports and runs nothing of it: wheels are
unpacked, folders are copied, image layers are written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.apptainer_image import read_sif
from sfumato.sandbox.base_environment import default_folder, own_folder
from sfumato.sandbox.image_archive import is_archive, read_archive
from sfumato.sandbox.image_registry import check_allowed, pull, read_login, read_reference
from sfumato.sandbox.locked_folders import GONE, LockedFolder, held_folder, sweep
from sfumato.sandbox.oci_image import Image, read_image
from sfumato.sandbox.program_environment import (
    FOLDER,
    IMAGE,
    LOCK,
    ImageFacts,
    OwnEnvironment,
    bad_environment,
    is_name,
    read_lock,
)
from sfumato.sandbox.shared_libraries import copy_runtime

# --- An environment's folder: its content digest, its size, and its read-only permissions


_AT_ONCE: Final = 1 << 20


def contents_of(folder: Path) -> str:
    """Return the digest of all names, contents, links and executable bits below a folder."""
    whole = hashlib.sha256()
    for place in sorted(_below(folder)):
        mode = place.lstat().st_mode
        name = os.fsencode(place.relative_to(folder))
        if stat.S_ISLNK(mode):
            kind, said = b"l", hashlib.sha256(os.fsencode(os.readlink(place)))
        elif stat.S_ISDIR(mode):
            kind, said = b"d", hashlib.sha256()
        else:
            kind, said = b"x" if mode & stat.S_IXUSR else b"f", _hashed(place)
        whole.update(b"%s%d:%s%s" % (kind, len(name), name, said.digest()))
    return whole.hexdigest()


def _hashed(place: Path) -> hashlib._Hash:
    found = hashlib.sha256()
    with place.open("rb") as file:
        while piece := file.read(_AT_ONCE):
            found.update(piece)
    return found


def _below(folder: Path) -> Iterator[Path]:
    """Yield the path of every file and folder below a folder, without following links."""
    left = [folder]
    while left:
        with os.scandir(left.pop()) as found:
            entries = list(found)
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                left.append(Path(entry.path))


def size_of(folder: Path) -> int:
    """Return how many bytes of memory a copy of an environment's folder takes.

    It counts whole pages, plus one page per file.
    """
    return sum(4096 + -(-place.lstat().st_size // 4096) * 4096 for place in _below(folder))


def let_nobody_change(folder: Path) -> None:
    for place in (folder, *_below(folder)):
        mode = place.lstat().st_mode
        if not stat.S_ISLNK(mode):
            place.chmod(0o555 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o444)


FILES, PACKAGES, LIBRARIES = "files", "packages", "libs"
PACKAGES_THERE: Final = "/env/own/packages"  # path of the packages in a sandbox
_ABOUT: Final = "about.json"
_INSTALL_S: Final = 1800
_MAX_FOLDER: Final = 4 << 30
_MAX_FILES: Final = 500_000
_MAX_DEPTH: Final = 64

_NO_WHEEL: Final = (
    " Only wheels are used, and none of them was found: if the package has no wheel for this "
    "Python, use another version or bring an image"
)
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FOLDER: Final = _OPEN | os.O_DIRECTORY


class Environments:
    """The programs' own environments that the owner has added on this machine, by name."""

    def __init__(self, root: Path | None = None, registries: object = None) -> None:
        """Set the root folder, created on first use; without one, use the user's default folder.

        `registries` is the operator's list of the registries from which images may be pulled.
        """
        self._root, self._registries = root, registries

    @property
    def registries(self) -> object:
        """Return the operator's list of the registries that are allowed, as vault.json has it."""
        return self._registries

    @property
    def root(self) -> Path:
        """Return the root folder of the environments, which only this user may change."""
        return own_folder(self._root or own_folder(default_folder()) / "own")

    def add_lock(self, lock: Path, note: str = "") -> OwnEnvironment:
        """Add an environment of the wheels that a locked requirements file pins; or refuse."""
        text = _text_of(lock)
        lines = read_lock(text)
        name = f"{LOCK}-{hashlib.sha256(text.encode()).hexdigest()}"
        return self._added(name, lambda draft: _install(lines, draft), note)

    def add_folder(self, folder: Path, note: str = "") -> OwnEnvironment:
        """Add an environment that is a copy of a folder of modules and files; or refuse."""
        if not folder.is_dir():
            raise bad_environment("there is no such folder")
        with held_folder(self.root) as held:
            copy = held.place / PACKAGES
            _copy(folder, copy)
            name = f"{FOLDER}-{contents_of(copy)}"
            return self._added(name, lambda draft: _move(copy, draft.place / FILES), note)

    def add_image(self, place: Path, digest: str, note: str = "") -> OwnEnvironment:
        """Add an environment from an image: an OCI layout, an archive or a SIF file; or refuse."""

        def made(draft: LockedFolder) -> ImageFacts:
            files = draft.place / FILES
            if place.is_dir():
                return _facts_of(read_image(place, digest, files))
            if is_archive(place):
                return _facts_of(read_archive(place, digest, files))
            draft.place.chmod(0o711)  # for the uid under which sqfs2tar runs
            sif = read_sif(place, digest, files)
            return ImageFacts(sif.entry, through=sif.through, labels=sif.labels)

        return self._added(_image_name(digest), made, note)

    def pull_image(
        self, reference: str, login: Path | None = None, note: str = ""
    ) -> OwnEnvironment:
        """Add an environment from an image at a registry that the operator allows; or refuse.

        Args:
            reference: The image's name and digest: `registry.example.org/team/tool@sha256:...`.
            login: A file with USER:PASSWORD, or one that `docker login` has written.
            note: A note for the list.
        """
        found = read_reference(reference)
        check_allowed(found, self._registries)

        def made(draft: LockedFolder) -> ImageFacts:
            who = None if login is None else read_login(login, found.host)
            with tempfile.TemporaryDirectory(dir=draft.place) as place:
                layout = Path(place, "layout")
                manifest = pull(found, who, layout)
                facts = _facts_of(read_image(layout, manifest, draft.place / FILES))
            return replace(facts, source=found.name)

        return self._added(_image_name(found.digest), made, note)

    def all(self) -> tuple[OwnEnvironment, ...]:
        """Return all environments that were added on this machine, sorted by name."""
        names = sorted(place.name for place in self.root.iterdir() if is_name(place.name))
        return tuple(one for one in map(self.find, names) if one is not None)

    def names(self) -> tuple[str, ...]:
        """Return the names of the environments, for researchers; this creates no folder."""
        try:
            found = os.listdir(self._root or default_folder() / "own")
        except OSError:
            return ()
        return tuple(sorted(filter(is_name, found)))

    def find(self, name: str) -> OwnEnvironment | None:
        """Return the record of the environment with this name, or None."""
        if not is_name(name):
            return None
        try:
            said = json.loads((self.root / name / _ABOUT).read_text("ascii"))
        except (OSError, ValueError):
            return None
        if not isinstance(said, dict):
            return None
        known = {one.name for one in fields(OwnEnvironment)}  # another version may write more
        said = {key: value for key, value in said.items() if key in known}
        lists = {key: tuple(said.get(key, ())) for key in ("entry", "settings", "through")}
        labels = tuple((str(key), str(one)) for key, one in said.get("labels", ()))
        return OwnEnvironment(**{**said, **lists, "labels": labels})

    def files(self, name: str) -> Path:
        """Return the folder of an environment after verifying its content digest; or refuse."""
        found = self.find(name)
        place = self.root / name / FILES
        if found is None or not place.is_dir() or contents_of(place) != found.contents:
            raise missing_environment()
        return place

    def remove(self, name: str) -> None:
        """Remove an environment; programs that were approved with it can no longer run."""
        if self.find(name) is None:
            raise missing_environment()
        with held_folder(self.root, GONE) as gone:
            (self.root / name).rename(gone.place / name)

    def sweep(self) -> None:
        """Delete unfinished and half-removed environments, which killed processes have left."""
        above = default_folder()
        for place in (above, above / "own") if self._root is None else (self._root,):
            with contextlib.suppress(Refused):  # another user's folder; its use is refused later
                if place.is_dir():
                    sweep(own_folder(place))

    def _put_by_another(self, name: str) -> OwnEnvironment:
        found = self.find(name)
        if found is None:
            raise missing_environment()
        return found

    def _added(
        self,
        name: str,
        make: Callable[[LockedFolder], ImageFacts],
        note: str,
    ) -> OwnEnvironment:
        """Return the environment of that name; if it is missing, create it atomically by `make`."""
        if not is_name(name):
            raise bad_environment("the name of an image must be sha256: and 64 hexadecimal digits")
        found = self.find(name)
        if found is not None:
            return found
        with held_folder(self.root) as draft:
            files = draft.place / FILES
            image = make(draft)
            let_nobody_change(files)
            megabytes = 1 + (size_of(files) >> 20)
            one = OwnEnvironment(
                name=name, megabytes=megabytes, contents=contents_of(files), said=note,
                **{field.name: getattr(image, field.name) for field in fields(image)},
            )  # fmt: skip
            (draft.place / _ABOUT).write_text(json.dumps(asdict(one)), "ascii")
            draft.place.chmod(0o755)
            if _is_put(draft.place, self.root / name):
                return one
            return self._put_by_another(name)


def _image_name(digest: str) -> str:
    return f"{IMAGE}-{digest.removeprefix('sha256:')}"


def _facts_of(image: Image) -> ImageFacts:
    """Return what is stored of a container image."""
    return ImageFacts(
        image.entry, image.settings, folder=image.folder, user=image.user, labels=image.labels,
        manifest=image.digest, config=image.config,
    )  # fmt: skip


def _is_put(draft: Path, place: Path) -> bool:
    """Rename a new environment to its final name; return False if another process was faster."""
    try:
        draft.rename(place)
    except OSError:
        return False
    return True


# --- creating an environment ----------------------------------------------------------------------


def _install(lines: tuple[str, ...], draft: LockedFolder) -> ImageFacts:
    """Download and unpack the pinned wheels; pip checks each hash, and builds and runs nothing.

    The unpacked sizes are checked after the download, before the wheels are unpacked.
    """
    files = draft.place / FILES
    files.mkdir()
    lock, target = (files / "lock.txt").absolute(), (files / PACKAGES).absolute()
    lock.write_text("\n".join(lines) + "\n", "ascii")
    with tempfile.TemporaryDirectory(dir=draft.place) as place:
        fetched = Path(place).absolute()
        _told_pip(fetch_command(lock, fetched), draft)
        _check_sizes(fetched)
        _told_pip(install_command(lock, target, fetched), draft)
    shutil.rmtree(target / "bin", ignore_errors=True)
    _compile(target, draft)
    copy_runtime(files)
    return ImageFacts()


def _told_pip(command: list[str], draft: LockedFolder) -> None:
    done = _run(command, draft)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        last = (said[-1] if said else "nothing")[:300]
        more = _NO_WHEEL if "No matching distribution" in last else ""
        raise bad_environment(f"pip says: {last}{more}")


def _run(command: list[str], draft: LockedFolder) -> subprocess.CompletedProcess[bytes]:
    """Run a command that inherits the lock of a draft folder and writes temporary files in it."""
    with tempfile.TemporaryDirectory(dir=draft.place) as nowhere:  # an empty folder: no modules
        return subprocess.run(
            command,
            cwd=nowhere,
            env={**os.environ, "TMPDIR": str(Path(nowhere).absolute())},
            pass_fds=(draft.lock,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_INSTALL_S,
            check=False,
        )


def fetch_command(lock: Path, target: Path) -> list[str]:
    """Return the pip command that downloads the wheels of a lock, with pinned hashes only."""
    return [*_pip("download"), "--dest", str(target), "--requirement", str(lock)]


def install_command(lock: Path, target: Path, fetched: Path) -> list[str]:
    """Return the pip command that unpacks the downloaded wheels, with the same hashes, offline."""
    return [
        *_pip("install"),
        *("--no-index", "--find-links", str(fetched), "--no-compile", "--no-warn-script-location"),
        *("--target", str(target), "--requirement", str(lock)),
    ]


def _pip(what: str) -> list[str]:
    return [
        *(sys.executable, "-I", "-m", "pip", what),
        *("--require-hashes", "--only-binary", ":all:"),
        *("--no-deps", "--no-input", "--disable-pip-version-check", "--quiet"),
    ]


def _check_sizes(fetched: Path) -> None:
    """Refuse an environment whose wheels declare sizes beyond the limits.

    Unpacking never writes more than declared.
    """
    count = size = 0
    for place in fetched.iterdir():
        try:
            with zipfile.ZipFile(place) as wheel:
                said = wheel.infolist()
        except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
            raise bad_environment("a wheel of it cannot be read") from None
        count, size = count + len(said), size + sum(4096 + one.file_size for one in said)
    if count > _MAX_FILES or size > _MAX_FOLDER:
        raise bad_environment(
            f"its wheels have more than {_MAX_FOLDER >> 30} GB, or too many files"
        )


def _compile(packages: Path, draft: LockedFolder) -> None:
    """Compile an environment's packages to .pyc files, reproducibly, for their sandbox path."""
    quietly = [sys.executable, "-I", "-m", "compileall", "-qq", "--invalidation-mode"]
    there = ["-s", str(packages), "-p", PACKAGES_THERE]
    _run(
        [*quietly, "unchecked-hash", *there, str(packages)], draft
    )  # files that do not compile are skipped


def _copy(folder: Path, target: Path) -> None:
    """Copy regular files and folders; refuse links, which can lead out of the folder.

    Each entry is opened relative to its open parent folder, and checked after it is open. So a
    concurrent change of the folder cannot make us copy a file from elsewhere.
    """
    try:
        opened = os.open(folder.resolve(), _OPEN_FOLDER)
        try:
            _Copy().fill(opened, target, 0)
        finally:
            os.close(opened)
    except OSError:
        raise bad_environment("the folder has a link or something unreadable in it") from None


class _Copy:
    """Copy of one folder, which counts files and bytes, and refuses more than the limits."""

    def __init__(self) -> None:
        self._count = self._size = 0

    def fill(self, source: int, target: Path, depth: int) -> None:
        """Copy the contents of an open folder into a new target folder, level by level."""
        if depth > _MAX_DEPTH:
            raise bad_environment(f"the folder is more than {_MAX_DEPTH} folders deep")
        target.mkdir()
        for name in os.listdir(source):
            mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                raise bad_environment("the folder has a link, a device or a pipe in it")
            opened = os.open(name, _OPEN_FOLDER if stat.S_ISDIR(mode) else _OPEN, dir_fd=source)
            try:
                self._take(opened, target / name, depth)
            finally:
                os.close(opened)

    def _take(self, opened: int, to: Path, depth: int) -> None:
        mode = os.fstat(opened).st_mode
        self._count_in(4096)
        if stat.S_ISDIR(mode):
            self.fill(opened, to, depth + 1)
        elif stat.S_ISREG(mode):
            with to.open("xb") as file:
                while piece := os.read(opened, _AT_ONCE):
                    self._count_in(len(piece), files=0)
                    file.write(piece)
            to.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        else:
            raise bad_environment("the folder has a link, a device or a pipe in it")

    def _count_in(self, size: int, files: int = 1) -> None:
        self._count, self._size = self._count + files, self._size + size
        if self._count > _MAX_FILES or self._size > _MAX_FOLDER:
            raise bad_environment(
                f"the folder has more than {_MAX_FOLDER >> 30} GB, or too many files"
            )


def _move(copy: Path, files: Path) -> ImageFacts:
    files.mkdir()
    copy.rename(files / PACKAGES)
    return ImageFacts()


def _text_of(lock: Path) -> str:
    try:
        return lock.read_text("utf-8")
    except (OSError, ValueError):
        raise bad_environment("the lock cannot be read") from None


def missing_environment() -> Refused:
    """Return the refusal for an environment that is missing or has changed."""
    return Refused(
        "bad-environment",
        "There is no environment (Python packages for programs) of that name, or its files have "
        "changed.",
        "See `sfumato pipeline environment list`. The owner can add it, or remove and add it "
        "again.",
    )
