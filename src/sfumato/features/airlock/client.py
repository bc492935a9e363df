"""The airlock in Python: submit a program, review its files, vote, release and fetch them."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from sfumato.client.ask_terms import Json, Number, named_terms, unknown_term_refusal
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.client import source_of
from sfumato.features.synthetic.client import MOMENT

RECEIPT: Final = "reviewed-not-dp.json"
REVIEWERS_ONLY: Final = "reviewers-only.txt"
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,7}")
_CALL: Final = """
import sys

import pandas

{name}(pandas.read_csv(sys.argv[1] + "/participants.tsv", sep="\\t"), sys.argv[2])
"""


class Files:
    """The files of an airlock request by path, with their guarantee and the checks' findings."""

    def __init__(self, shape: Json) -> None:
        self.shape = shape
        listed = cast("Sequence[Mapping[str, str]]", shape.get("files", []))
        self.files = {one["path"]: base64.b64decode(one["base64"]) for one in listed}

    @property
    def guarantee(self) -> str:
        """Return the guarantee of the files: reviewed, which is not differential privacy."""
        return str(self.shape["guarantee"])

    @property
    def findings(self) -> Sequence[Mapping[str, str]]:
        """Return the findings of the automatic checks; only reviewers get them."""
        return cast("Sequence[Mapping[str, str]]", self.shape.get("findings", []))

    def archive(self) -> bytes:
        """Return the files as one .zip archive, with their receipt or a reviewers-only note.

        Raises:
            Refused: `bad-request` if a path is unsafe.
        """
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
            for path, text in self._all().items():
                file.writestr(zipfile.ZipInfo(path, MOMENT), text)
        return made.getvalue()

    def _all(self) -> dict[str, bytes]:
        """Return all files by path, and the receipt (or a reviewers-only note) as one more file.

        Refuse a path that could leave the folder.
        """
        note = RECEIPT if "receipt" in self.shape else REVIEWERS_ONLY
        plain = [*(path.casefold() for path in self.files), note]
        is_inside = any(one.startswith(f"{two}/") for one in plain for two in plain)
        are_plain = all(_PATH.fullmatch(path) for path in self.files)
        if not are_plain or is_inside or len(set(plain)) < len(plain):
            raise Refused(
                "bad-request",
                "A released file has a name that could write outside the chosen folder, so "
                "nothing was saved.",
                "Tell the data set's owner.",
            )
        if "receipt" in self.shape:
            card = {"guarantee": self.guarantee, "receipt": self.shape["receipt"]}
            return {**self.files, RECEIPT: json.dumps(card, indent=2).encode() + b"\n"}
        return {**self.files, REVIEWERS_ONLY: f"{self.shape.get('label', '')}\n".encode()}

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the files into a new folder, with their receipt or a reviewers-only note.

        Args:
            folder: The new folder. It is created with all of the files, or not at all.

        Returns:
            The path of the folder.

        Raises:
            Refused: `bad-request` if the folder exists and is not empty, or a path is unsafe.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise Refused("bad-request", f"{place} already exists.", "Name a new folder.")
        files = self._all()
        half = place.absolute().with_name(f".{place.absolute().name}.half")
        shutil.rmtree(half, ignore_errors=True)  # left by a process that was killed
        half.mkdir(parents=True)
        try:
            for path, text in files.items():
                (half / path).parent.mkdir(parents=True, exist_ok=True)
                (half / path).write_bytes(text)
            half.replace(place)
        finally:
            shutil.rmtree(half, ignore_errors=True)
        return place

    def __repr__(self) -> str:
        return f"Files({', '.join(self.files)}; {self.guarantee})"


class DataSetAirlock:
    """The airlock of one data set: submit, run, review, vote on, release and fetch requests."""

    def __init__(self, call: Callable[[str, Json], Json], name: str) -> None:
        self._call = call  # calls a verb of the vault with a body
        self._name = name

    @named_terms(unknown_term_refusal("a request"))
    def submit(  # noqa: PLR0913  # the limits of a program
        self,
        program: str | Callable[[Any, str], object],
        files: Sequence[str | Mapping[str, object]],
        *,
        columns: Sequence[str] | None = None,
        why: str = "",
        cpu_s: Number | None = None,
        memory_mb: int | None = None,
        disk_mb: int | None = None,
        environment: str = "",
    ) -> Json:
        """Submit a program and declare its files; the owner runs it, then reviewers decide.

        Args:
            program: The text of a program, or a function that gets all rows as a pandas frame, and
                the folder to write to. In an image, the text may be in any language, and its first
                line names the interpreter; an empty text means the image's own program.
            files: The files: each a path, or a mapping. A mapping has `path`; `by`, the columns
                that group its lines; `count`, its column with the number of people; `of`, the
                card's column that it sums up.
            columns: The columns that the program reads; by default all.
            why: The purpose of the files, for the reviewers.
            cpu_s: The limit of processor time, in seconds.
            memory_mb: The limit of memory, in megabytes.
            disk_mb: The limit of disk space, in megabytes.
            environment: The name of the image or of the packages that the program needs, as the
                owner added them.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-closed` if the card has no airlock, `bad-airlock`, `bad-environment`
                or `bad-pipeline`.
        """
        limits = {"cpu_s": cpu_s, "memory_mb": memory_mb, "disk_mb": disk_mb}
        source = program if isinstance(program, str) else _program(program)
        asked = [{"path": one} if isinstance(one, str) else dict(one) for one in files]
        body: Json = {"data_set": self._name, "source": source, "files": asked, "why": why}
        named = {} if columns is None else {"columns": list(columns)}
        said = {name: limit for name, limit in limits.items() if limit is not None}
        brought = {"environment": environment} if environment else {}
        return self._call("submit-airlock", {**body, **named, **said, **brought})

    def list(self) -> Sequence[Json]:
        """Return the airlock requests about this data set that you may see.

        Raises:
            Refused: `unknown-data-set` if you may neither ask nor review such a data set.
        """
        found = self._call("airlock", {"data_set": self._name})
        return cast("Sequence[Json]", found["requests"])

    def run(self, request: str) -> Json:
        """Run a request's program once on the real rows; only the data set's owner may.

        Args:
            request: The id of the request.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-unknown` or `airlock-waits`.
        """
        return self._act("run", request)

    def show(self, request: str) -> Files:
        """Return the files under review, with real data; only the request's reviewers get them.

        Args:
            request: The id of the request.

        Returns:
            The files, and what the automatic checks found.

        Raises:
            Refused: `airlock-unknown`, or `airlock-changed` if the files no longer exist.
        """
        return Files(self._act("show", request))

    def vote(self, seen: Files, says: str, *, why: str = "") -> Json:
        """Vote on exactly the files that you have seen; your last vote counts.

        Args:
            seen: The files, as `show` gave them.
            says: "release" or "reject".
            why: Your reason.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-waits` if there is nothing to vote on, `airlock-changed` if the files
                or findings have changed since you saw them.
        """
        said = {key: seen.shape[key] for key in ("seal", "draft") if key in seen.shape}
        if len(said) < 2:
            raise Refused(
                "airlock-waits",
                "The airlock request has no files under review, or you are not one of "
                "its reviewers.",
                "Look at the state of the request: its program may not have run yet.",
            )
        return self._act("vote", str(seen.shape["request"]), says=says, why=why, **said)

    def trim(self, request: str, path: str) -> Json:
        """Remove a file from the files under review; earlier approvals become void.

        Args:
            request: The id of the request.
            path: The path of the file.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-unknown`, `not-allowed` if you are not a reviewer, `airlock-waits` if
                the request is not under review, or `bad-airlock` if it has no such file.
        """
        return self._act("trim", request, path=path)

    def replace(self, request: str, path: str, file: bytes) -> Json:
        """Replace a file by one of yours; approvals become void, and you can't vote on it.

        Args:
            request: The id of the request.
            path: The path of the file.
            file: The content of the new file.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-unknown`, `not-allowed` if you are not a reviewer, `airlock-waits` if
                the request is not under review, or `bad-airlock` if it has no such file, or yours
                is empty or too large.
        """
        return self._act("replace", request, path=path, base64=base64.b64encode(file).decode())

    def release(self, request: str) -> Json:
        """Release a request's files, if enough reviewers voted for exactly these files.

        Args:
            request: The id of the request.

        Returns:
            The request and its state, with the receipt.

        Raises:
            Refused: `airlock-waits` without enough votes, `airlock-unsafe` for a file whose content
                does not match its type.
        """
        return self._act("release", request)

    def decline(self, request: str) -> Json:
        """Decline a request; only the data set's owner may.

        Args:
            request: The id of the request.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-unknown`, `not-allowed` if you are not the owner, or `airlock-waits`
                if the request is over.
        """
        return self._act("decline", request)

    def withdraw(self, request: str) -> Json:
        """Withdraw your own airlock request while it is open.

        Args:
            request: The id of the request.

        Returns:
            The request and its state.

        Raises:
            Refused: `airlock-unknown`, `not-allowed` if it is not yours, or `airlock-waits` if the
                request is over.
        """
        return self._act("withdraw", request)

    def fetch(self, request: str) -> Files:
        """Return the files of a released request.

        Args:
            request: The id of the request.

        Returns:
            The files, with their receipt.

        Raises:
            Refused: `airlock-waits` if they are not released.
        """
        return Files(self._act("fetch", request))

    def _act(self, act: str, request: str, **more: object) -> Json:
        return self._call(f"{act}-airlock", {"request": request, **more})


def _program(function: Callable[[Any, str], object]) -> str:
    """Return a program's source text: the source of the function, and a call of it on all rows."""
    name, source = source_of(function)
    return source + _CALL.format(name=name)
