"""The airlock of a data set: files without noise, that others look at before they leave."""

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
from typing import TYPE_CHECKING, Any, Final, cast

from sfumato.client.pipeline import source_of
from sfumato.client.terms import Json, Number
from sfumato.client.twin import MOMENT
from sfumato.core.refusal import Refused

if TYPE_CHECKING:
    from sfumato.client.vault import Vault

RECEIPT: Final = "reviewed-not-dp.json"
REVIEWERS_ONLY: Final = "reviewers-only.txt"
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,7}")
_CALL: Final = """
import sys

import pandas

{name}(pandas.read_csv(sys.argv[1] + "/participants.tsv", sep="\\t"), sys.argv[2])
"""


class Files:
    """Files of a request, by path, with all that is said of them; nothing here renders them."""

    def __init__(self, shape: Json) -> None:
        self.shape = shape
        listed = cast("Sequence[Mapping[str, str]]", shape.get("files", []))
        self.files = {one["path"]: base64.b64decode(one["base64"]) for one in listed}

    @property
    def guarantee(self) -> str:
        """Return what is promised of them: not much."""
        return str(self.shape["guarantee"])

    @property
    def findings(self) -> Sequence[Mapping[str, str]]:
        """Return what the checks found, for reviewers."""
        return cast("Sequence[Mapping[str, str]]", self.shape.get("findings", []))

    def archive(self) -> bytes:
        """Return released files, and the note of what they are, as one archive."""
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
            for path, text in self._all().items():
                file.writestr(zipfile.ZipInfo(path, MOMENT), text)
        return made.getvalue()

    def _all(self) -> dict[str, bytes]:
        """Return the files with the note of what they are; no name leads out of a folder."""
        note = RECEIPT if "receipt" in self.shape else REVIEWERS_ONLY
        plain = [*(path.casefold() for path in self.files), note]
        is_inside = any(one.startswith(f"{two}/") for one in plain for two in plain)
        are_plain = all(_PATH.fullmatch(path) for path in self.files)
        if not are_plain or is_inside or len(set(plain)) < len(plain):
            raise Refused("bad-request", "A file has no plain name.", "Tell the owner.")
        if "receipt" in self.shape:
            card = {"guarantee": self.guarantee, "receipt": self.shape["receipt"]}
            return {**self.files, RECEIPT: json.dumps(card, indent=2).encode() + b"\n"}
        return {**self.files, REVIEWERS_ONLY: f"{self.shape.get('label', '')}\n".encode()}

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the files into a new folder, with a note of what they are; return where.

        The folder is there with all of them, or not at all.
        """
        place = Path(folder)
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise Refused("bad-request", f"{place} is there already.", "Name a new folder.")
        files = self._all()
        half = place.absolute().with_name(f".{place.absolute().name}.half")
        shutil.rmtree(half, ignore_errors=True)  # of one that was killed
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


class AirlockRoom:
    """What can be done about the files of one data set."""

    def __init__(self, vault: Vault, name: str) -> None:
        self._vault = vault
        self._name = name

    def submit(
        self,
        program: str | Callable[[Any, str], object],
        files: Sequence[str | Mapping[str, object]],
        *,
        columns: Sequence[str] | None = None,
        why: str = "",
        **limits: Number,
    ) -> Json:
        """Hand in a program that is to leave these files, for the owner and then reviewers.

        A function gets everybody's rows as a pandas frame, and the folder to write to. A file is a
        path, or a path with the columns `by` that its lines are groups of, the column `count` with
        the number of people, and the column `of` the card that is added up.
        """
        source = program if isinstance(program, str) else _program(program)
        asked = [{"path": one} if isinstance(one, str) else dict(one) for one in files]
        body: Json = {"data_set": self._name, "source": source, "files": asked, "why": why}
        named = {} if columns is None else {"columns": list(columns)}
        return self._vault.call("submit-airlock", {**body, **named, **limits})

    def list(self) -> Sequence[Json]:
        """Return the requests that are yours to see."""
        found = self._vault.call("airlock", {"data_set": self._name})
        return cast("Sequence[Json]", found["requests"])

    def run(self, request: str) -> Json:
        """Let a program run, once; the owner's act."""
        return self._act("run", request)

    def show(self, request: str) -> Files:
        """Return what there is to look at; real, and for reviewers alone."""
        return Files(self._act("show", request))

    def vote(self, seen: Files, says: str, *, why: str = "") -> Json:
        """Say "release" or "reject" of exactly what was seen."""
        said = {key: seen.shape[key] for key in ("seal", "draft") if key in seen.shape}
        if len(said) < 2:
            raise Refused("airlock-waits", "There is nothing to vote on yet.", "See its state.")
        return self._act("vote", str(seen.shape["request"]), says=says, why=why, **said)

    def trim(self, request: str, path: str) -> Json:
        """Take a file out; every vote is gone."""
        return self._act("trim", request, path=path)

    def replace(self, request: str, path: str, file: bytes) -> Json:
        """Put a file of yours in the place of one; every vote is gone, and you have none."""
        return self._act("replace", request, path=path, base64=base64.b64encode(file).decode())

    def release(self, request: str) -> Json:
        """Let the files out, if enough reviewers have said so."""
        return self._act("release", request)

    def decline(self, request: str) -> Json:
        """Let a request go no further; the owner's act."""
        return self._act("decline", request)

    def withdraw(self, request: str) -> Json:
        """Take a request of your own back."""
        return self._act("withdraw", request)

    def fetch(self, request: str) -> Files:
        """Return the files of a released request."""
        return Files(self._act("fetch", request))

    def _act(self, act: str, request: str, **more: object) -> Json:
        return self._vault.call(f"{act}-airlock", {"request": request, **more})


def _program(function: Callable[[Any, str], object]) -> str:
    """Return the text of a program that calls the function on everybody's rows."""
    name, source = source_of(function)
    return source + _CALL.format(name=name)
