"""How programs are run over BIDS folders inside a bubble; copied there, so it imports none of ours.

It runs in a block that has given up every right. What a person's own run has left is hostile: it
is unpacked, where it is a plain file inside the output folder, for the group's run to read.
"""

import contextlib
import json
import os
import re
import runpy
import shutil
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

Job = dict[str, Any]  # Any: JSON, as a researcher gave it
INPUT = 4  # where a folder is read from; gone before the program has the word
SOURCE, TARGET, PROGRAM = "/work/in", "/work/out", "/work/tmp/program.py"
FOLDER = "/work/tmp/program"  # of a program of several files
PARTICIPANT = "participant"
MOST_FILE = 65_536  # of a result; more is not sent, for nothing that long is read
_MOST_KEPT = 1_000  # files of a person's own run
_MOST_LEFT = 1 << 20  # bytes of them; the limits in ports.py are smaller
_RECORD = struct.Struct("<cHQ")  # as in vault/folder_archive_format.py
_FILE = b"I"
_PLACE = re.compile(r"[A-Za-z0-9_.,=+@-]{1,100}(/[A-Za-z0-9_.,=+@-]{1,100}){0,15}")
_AT_ONCE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


# --- folders whole --------------------------------------------------------------------------------


def _study(job: Job, _text: bytes) -> bytes | dict[str, str]:
    """Run a program at one level over the folder that it is given; give what it has left."""
    _lay_out(job)
    _put_program(job)
    _run_level(job, SOURCE, job["level"])
    return _packed() if job["level"] == PARTICIPANT else _results(job)


def _laid_out(job: Job, text: bytes) -> None:
    """Lay out what an image's own program is given: a folder whole, or a table as one."""
    if job["kind"] == "study":
        _lay_out(job)
    else:
        _write_study(job, SOURCE, text)
    if job["source"]:
        _put_program(job)


def _gather(job: Job, _text: bytes) -> bytes:
    """Return what an image's own program has left."""
    if job.get("level") == PARTICIPANT:
        return _packed()
    return json.dumps(_results(job)).encode()


def _lay_out(job: Job) -> None:
    """Lay out a folder, and let go of where it came from."""
    for name, text in job["study"].items():
        _put(SOURCE, name, [text.encode()])
    _unpack()
    os.close(INPUT)


def _unpack() -> None:
    """Lay the folder out, and what people's own runs have left beside it."""
    while head := os.read(INPUT, _RECORD.size):
        kind, length, size = _RECORD.unpack(head)
        path = os.read(INPUT, length).decode()
        if kind == _FILE:
            _put(SOURCE, path, _pieces(size))
        else:  # somebody, and what their own run has left
            os.makedirs(f"{SOURCE}/{path}", exist_ok=True)
            _put_said(b"".join(_pieces(size)))


def _pieces(size: int) -> Iterator[bytes]:
    while size > 0:
        piece = os.read(INPUT, min(size, _AT_ONCE))
        if not piece:
            raise ValueError
        size -= len(piece)
        yield piece


def _put(root: str, path: str, pieces: Any) -> None:  # Any: an iterable of bytes
    os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
    with open(f"{root}/{path}", "wb") as file:
        file.writelines(pieces)


def _put_said(text: bytes) -> None:
    """Lay out what one person's run has left, as far as it makes sense."""
    place = 0
    with contextlib.suppress(ValueError, OSError, struct.error):
        while place < len(text):
            _, length, size = _RECORD.unpack_from(text, place)
            place += _RECORD.size + length
            path = text[place - length : place].decode("ascii")
            if _is_inside(path):
                _put(TARGET, path, [text[place : place + size]])
            place += size


def _is_inside(path: str) -> bool:
    return _PLACE.fullmatch(path) is not None and ".." not in path.split("/")


def _packed() -> bytes:
    """Return every plain file that a person's run has left, in one piece."""
    found: list[str] = []
    if os.path.islink(TARGET):
        return b""
    for folder, _, names in os.walk(TARGET):
        found += [os.path.relpath(f"{folder}/{name}", TARGET) for name in names]
    kept = [path for path in sorted(found) if _is_inside(path)][:_MOST_KEPT]
    packed = b""
    for path in kept:
        text = _read(path, _MOST_LEFT)
        if text is not None:
            packed += _packed_file(path, text)
        if len(packed) > _MOST_LEFT:  # a longer result is dropped anyway
            break
    return packed


def _packed_file(path: str, text: bytes) -> bytes:
    return _RECORD.pack(_FILE, len(path), len(text)) + path.encode("ascii") + text


# --- tables alone, as folders ---------------------------------------------------------------------


def _program(job: Job, text: bytes) -> dict[str, str]:
    """Run a program as `PROGRAM INPUT OUTPUT group` over a BIDS folder; give its result files."""
    _write_study(job, SOURCE, text)
    _put_program(job)
    _run_level(job, SOURCE, "group")
    return _results(job)


def _bids(job: Job, text: bytes) -> dict[str, str]:
    """Run a program for each person alone, then for the group, as BIDS apps are run.

    Whoever is run alone is the only one in the folder of their run. What they give lies in the
    output folder, where the group's run finds it.
    """
    head, *lines = text.decode().splitlines(keepends=True)
    head = "participant_id\t" + head.partition("\t")[2]
    lines = [f"sub-{line}" for line in lines]
    people: dict[str, list[str]] = {}
    for line in lines:
        people.setdefault(line.partition("\t")[0].rstrip(), []).append(line)
    _put_program(job)
    for person, own in people.items():
        _write_study(job, f"/work/tmp/{person}", (head + "".join(own)).encode(), (person,))
        _run_level(job, f"/work/tmp/{person}", PARTICIPANT)
        shutil.rmtree(f"/work/tmp/{person}", ignore_errors=True)
    _write_study(job, SOURCE, (head + "".join(lines)).encode(), tuple(people))
    _run_level(job, SOURCE, "group")
    return _results(job)


def _write_study(job: Job, place: str, text: bytes, people: tuple[str, ...] = ()) -> None:
    os.makedirs(place, exist_ok=True)
    with open(f"{place}/participants.tsv", "wb") as file:
        file.write(text)
    plain = {"dataset_description.json": '{"Name": "block", "BIDSVersion": "1.8.0"}'}
    for name, said in job.get("study", plain).items():
        _put(place, name, [said.encode()])
    for person in people:
        os.mkdir(f"{place}/{person}")


# --- running --------------------------------------------------------------------------------------


def _put_program(job: Job) -> None:
    """Write the program's files; a program of several files begins in its own folder."""
    place = _main_place(job)
    for path, text in {**job.get("modules", {}), job.get("main", ""): job["source"]}.items():
        written = f"{FOLDER}/{path}" if path else place
        _put(os.path.dirname(written), os.path.basename(written), [text.encode()])
        if written == place or text.startswith("#!"):
            os.chmod(written, 0o700)
    if "main" in job:
        os.chdir(FOLDER)
    sys.path.insert(0, os.path.dirname(place))


def _main_place(job: Job) -> str:
    """Return the path of the program's file, or of the main one of several."""
    return f"{FOLDER}/{job['main']}" if "main" in job else PROGRAM


def _run_level(job: Job, place: str, level: str) -> None:
    """Run the program once; a person's run that fails keeps nobody from the group's run.

    What it prints, and how it ends (`job["left"]`), is heard of made-up rows alone (inside.py).
    """
    sys.argv = [_main_place(job), place, TARGET, level]
    job["left"] = None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        job["left"] = end.code
    except Exception:
        if level != PARTICIPANT:
            raise
        sys.excepthook(*sys.exc_info())
        job["left"] = 1


def _results(job: Job) -> dict[str, str]:
    if "room" in job:
        return _whole_files(job)
    read = {path: _read(path, MOST_FILE) for path in sorted(set(job["paths"]))}
    return {path: text.hex() for path, text in read.items() if text is not None}


def _whole_files(job: Job) -> dict[str, str]:
    """Return the result files whole: those that fit into `room` bytes together, in their order."""
    room: int = job["room"]
    found: dict[str, str] = {}
    for path in job["paths"]:
        text = _read(path, room + 1)
        if text is not None and len(text) <= room:
            found[path] = text.hex()
            room -= len(text)
    return found


def _read(path: str, most: int = -1) -> "bytes | None":
    """Return the text of a plain file below the output folder, up to `most` bytes, or None.

    No link is followed: one that a program has left could name a file of the reader, such as a
    counter of the whole host under /proc.
    """
    *folders, name = path.split("/")
    opened = [os.open(os.path.dirname(TARGET), _FOLDER)]
    try:
        for folder in (os.path.basename(TARGET), *folders):
            opened.append(os.open(folder, _FOLDER, dir_fd=opened[-1]))
        opened.append(os.open(name, _PLAIN, dir_fd=opened[-1]))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            return None
        with open(opened.pop(), "rb") as file:
            return file.read(most)
    except OSError:
        return None
    finally:
        for one in opened:
            os.close(one)


RUNS: dict[str, Callable[[Job, bytes], Any]] = {  # Any: bytes, or files, or nothing
    "study": _study, "program": _program, "bids": _bids, "lay-out": _laid_out, "gather": _gather,
}  # fmt: skip
