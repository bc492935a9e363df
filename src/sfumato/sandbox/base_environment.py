"""The base environment of sandboxed programs: a private copy of the interpreter and libraries.

The copy contains only public software, including the shared libraries that it needs. So a sandbox
needs no other file of the host. The copy is created once, in a folder that everyone may read and
only the user of this process may change. Every sandbox copies it into its own memory (inside.py).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Final

from sfumato.dp.refusal import Refused
from sfumato.sandbox.locked_folders import LockedFolder, held_folder
from sfumato.sandbox.seccomp import (
    UnknownMachine,
    batch_filter_for,
    filter_for,
    reader_filter_for,
    requests_of_a_tree,
    requests_of_a_trial,
    tree_filter_for,
)
from sfumato.sandbox.shared_libraries import LOADER, copy_libraries

PREFERRED: Final = ("numpy", "pandas")  # libraries that programs get, if they are installed here
_LEFT_OUT: Final = (
    "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data",
)  # fmt: skip
_LEFT_OUT_TOO: Final = ("_tkinter.*", "nis.*", "*.opt-1.pyc", "*.opt-2.pyc", "site-packages")
_VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LAYOUT: Final = "6"  # version of the copy's layout; the digest includes it
_COPIED: Final = (
    "inside", "function", "study", "image", "process_tree", "trial_observer", "nested",
)  # fmt: skip
_INSIDE: Final = tuple(Path(__file__).with_name(f"{name}.py") for name in _COPIED)
_FILTERS: Final = {
    "filter": filter_for, "filter-reader": reader_filter_for, "filter-tree": tree_filter_for,
    "filter-batch": batch_filter_for, "filter-requests": requests_of_a_tree,
    "filter-trial": requests_of_a_trial,
}  # fmt: skip
_HERE, _FROM = "/env", "/from"  # paths in a sandbox: the copy in memory, and the host's folder
_WARM_S: Final = 120


@dataclass(frozen=True)
class Environment:
    """A program environment on disk: its folder, its libraries, and a program's own files."""

    folder: Path
    modules: tuple[str, ...]
    own: Path | None = None  # a program's own libraries or image, if it has any
    is_image: bool = False
    is_batch: bool = False  # True if an image's blocks run in batches
    is_alone: bool = False  # True if the base libraries are left out

    @property
    def python(self) -> str:
        """Return the path of the Python interpreter inside a sandbox."""
        return f"{_HERE}/python/bin/{_VERSION}"

    @property
    def first(self) -> list[str]:
        """Return the command that starts Python before the environment is copied into memory."""
        loader = f"{_FROM}/libs/{LOADER.name}"
        return [loader, "--library-path", f"{_FROM}/libs", f"{_FROM}/python/bin/{_VERSION}"]

    @property
    def digest(self) -> str:
        """Return the digest that identifies this environment, which is its folder's name."""
        return self.folder.name


def environment(folder: Path | None = None, *, vault: Path | None = None) -> Environment:
    """Return the base environment of sandboxes, and create its copy if missing; or refuse."""
    root = own_folder(folder or default_folder())
    if vault is not None:
        _check_outside_vault(vault.resolve(), root.resolve())
    code = _code()
    if not code:
        raise Refused(
            "sandbox-missing",
            f"There is no list of system calls for a {platform.machine()} processor.",
            "Run programs (pipelines) on a machine with an x86-64 processor.",
        )
    found = _distributions(PREFERRED)
    modules = tuple(name for name in PREFERRED if name in found)
    place = root / _digest(found, code)
    if not place.is_dir():
        _make(place, found, code)
    return Environment(place, modules)


def with_own(made: Environment, files: Path, *, is_image: bool) -> Environment:
    """Return the environment with a program's own files added.

    Only a block (the process that runs the program) that has dropped all privileges imports these
    files. If the zygote (the process from which blocks are forked) imported them, they would also
    be in the next block. If they replace a base library, all base libraries are left out, and none
    is preloaded.
    """
    house = made.folder / "packages"
    theirs = set() if is_image else _modules_in(files / "packages")
    is_alone = is_image or bool(_modules_in(house) & theirs)
    modules = () if is_alone else made.modules
    return replace(made, modules=modules, own=files, is_image=is_image, is_alone=is_alone)


def _modules_in(folder: Path) -> set[str]:
    """Return the names of the modules in a folder: `x`, `x.py` and `x.cpython.so` all give x."""
    places = folder.iterdir() if folder.is_dir() else ()
    return {place.name.partition(".")[0] for place in places}


def environment_digest() -> str:
    """Return the digest of the base environment, without creating its copy on disk."""
    return _digest(_distributions(PREFERRED), _code())


def _code() -> dict[str, bytes]:
    """Return the seccomp filters (allowed system calls) by name; none on an unknown processor."""
    try:
        return {name: made(platform.machine()) for name, made in _FILTERS.items()}
    except UnknownMachine:
        return {}


def default_folder() -> Path:
    """Return the default folder of environments, which the uid of the sandboxes can read."""
    if os.geteuid() == 0:
        return Path("/var/cache/sfumato-sandbox")
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "sfumato-sandbox"


def own_folder(root: Path) -> Path:
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = root.lstat()
    others_may_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or others_may_write:
        raise Refused(
            "sandbox-missing",
            f"The folder {root} of the sandbox's interpreter belongs to another user.",
            "Remove this folder. sfumato creates it again.",
        )
    root.chmod(0o755)
    return root


def _check_outside_vault(vault: Path, root: Path) -> None:
    """Refuse a vault inside a folder that sandboxes see, or that is copied into them."""
    copied = (Path(sys.base_prefix, "lib").resolve(), Path(sys.prefix, "lib").resolve())
    if any(vault.is_relative_to(seen) for seen in (root, *copied)):
        raise Refused(
            "sandbox-missing",
            "The vault is in a folder that programs in the sandbox can read.",
            "Move the vault to another folder.",
        )


# --- which libraries ------------------------------------------------------------------------------


def _distributions(wanted: tuple[str, ...]) -> dict[str, metadata.Distribution]:
    """Return the installed distributions of these names and of their dependencies, by name."""
    found: dict[str, metadata.Distribution] = {}
    left = list(wanted)
    while left:
        name = left.pop()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # not installed, or a requirement of another system
        left += [_name(line) for line in found[name].requires or () if "extra ==" not in line]
    return found


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def _digest(found: dict[str, metadata.Distribution], code: dict[str, bytes]) -> str:
    named = sorted(f"{name}=={one.version}" for name, one in found.items())
    parts = [_LAYOUT, sys.version, sys.base_prefix, *platform.libc_ver(), *named]
    said = "\n".join(parts).encode() + b"".join(
        (*code.values(), *(f.read_bytes() for f in _INSIDE))
    )
    return hashlib.sha256(said).hexdigest()[:24]


# --- copying --------------------------------------------------------------------------------------


def _make(place: Path, found: dict[str, metadata.Distribution], code: dict[str, bytes]) -> None:
    with held_folder(place.parent) as held:
        _fill(held, found, code)
        _publish(held.place, place)


def _fill(
    held: LockedFolder, found: dict[str, metadata.Distribution], code: dict[str, bytes]
) -> None:
    draft = held.place
    _copy_python(draft / "python")
    for one in found.values():
        _copy_distribution(one, draft / "packages")
    binaries = [draft / "python" / "bin" / _VERSION, *draft.rglob("*.so*")]
    copy_libraries(binaries, draft, Path(sys.base_prefix, "lib"))
    (draft / "inside").mkdir()
    for file in _INSIDE:
        shutil.copyfile(file, draft / "inside" / file.name)
    for name, text in code.items():
        (draft / "inside" / name).write_bytes(text)
    _warm(held, [name for name in PREFERRED if name in found])
    for path in (draft, *draft.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _publish(draft: Path, place: Path) -> None:
    try:
        draft.rename(place)
    except OSError:  # another process was faster; the same digest means the same contents
        if not place.is_dir():
            raise


def _copy_python(target: Path) -> None:
    base = Path(sys.base_prefix)
    (target / "bin").mkdir(parents=True)
    shutil.copy2((base / "bin" / _VERSION).resolve(), target / "bin" / _VERSION)
    leave = shutil.ignore_patterns("config-*", *_LEFT_OUT, *_LEFT_OUT_TOO)
    shutil.copytree(
        base / "lib" / _VERSION, target / "lib" / _VERSION, ignore=leave,
        ignore_dangling_symlinks=True,
    )  # fmt: skip


def _copy_distribution(one: metadata.Distribution, target: Path) -> None:
    for file in one.files or ():
        if ".." in file.parts or any(part in _LEFT_OUT for part in file.parts):
            continue
        source = Path(str(one.locate_file(file)))
        if source.is_file():
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / file)


def _warm(held: LockedFolder, modules: list[str]) -> None:
    """Import an environment's libraries once, so that their .pyc files exist in the copy."""
    draft = held.place
    imports = "".join(f"import {name}\n" for name in modules)
    subprocess.run(
        [
            str(draft / "python" / "bin" / _VERSION),
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {str(draft / 'packages')!r})\n{imports}",
        ],
        env={"LD_LIBRARY_PATH": str(draft / "libs"), "OPENBLAS_NUM_THREADS": "1"},
        check=False,
        timeout=_WARM_S,
        pass_fds=(held.lock,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
