"""The owner's review of a program: a checklist, the changes since an approval, and its records."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sfumato.dp.json_values import Json
from sfumato.dp.refusal import Refused
from sfumato.features.pipelines.model import APPROVED, Submitted, title_of
from sfumato.sandbox.program_environment import own_of

# The ids are in the ledger: a question with another meaning gets another id.
CHECKLIST: Final[Mapping[str, str]] = {
    "text": "Have you read the whole program, or do you know who made the image and what it does?",
    "columns": "Does the program read only the columns that it needs?",
    "ranges": "Were the ranges of the outputs chosen without looking at the rows?",
    "outputs": "Does every output say something about many people, and nothing about one person?",
    "libraries": "Do you know the libraries or the image, and where they come from?",
    "trial": "Did the trial on synthetic people give the numbers that you expect?",
    "untried": "No trial on synthetic people is on record. Do you approve the program untried?",
    "price": "Is the largest epsilon of a run worth what its result tells?",
}
MAX_REASON: Final = 1000  # the most letters of the reason for a decision
# the most lines of a text that are compared; comparing takes up to the square of this
MAX_COMPARED: Final = 1500
_PLAIN: Final = re.compile(r"[\w./:@+-]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Review:
    """What an owner confirmed and wrote when deciding on a program."""

    data_set: str
    digest: str
    at: str  # the time of the decision, which the submitted program has too
    checked: tuple[str, ...] = ()  # ids of the checklist's questions that the owner confirmed
    reason: str = ""


@dataclass(frozen=True)
class KeptTrial:
    """The last trial of a program on synthetic people, as its author or the owner ran it."""

    data_set: str
    digest: str
    by: str
    at: str
    plan: str  # JSON


class ReviewStore(Protocol):
    """A store of reviews and trials; a change is durable when its call returns."""

    def add(self, one: Review) -> None:
        """Store what an owner confirmed and wrote with a decision."""
        ...

    def of(self, data_set: str) -> Mapping[tuple[str, str], Review]:
        """Return the reviews of a data set's programs, by digest and time of the decision."""
        ...

    def keep_trial(self, one: KeptTrial, author: str) -> None:
        """Store the last trial of a program; old trials of the same author are deleted."""
        ...

    def trial(self, data_set: str, digest: str) -> KeptTrial | None:
        """Return the last trial of a program, or None."""
        ...


def asked_of(*, is_tried: bool) -> dict[str, str]:
    """Return the questions of the checklist for a program with or without a trial on record."""
    other = "untried" if is_tried else "trial"
    return {name: asks for name, asks in CHECKLIST.items() if name != other}


def check_tried(checked: Sequence[str], *, is_tried: bool) -> None:
    """Refuse to confirm a trial that is not on record."""
    if "trial" in checked and not is_tried:
        raise Refused(
            "bad-pipeline",
            "No trial of this program on synthetic people is on record, so nobody can confirm its "
            "numbers. Nothing was approved.",
            "Make one with `sfumato pipeline plan`, which is free, or confirm instead that you "
            "approve the program untried.",
        )


def read_checked(checked: object, reason: object) -> tuple[tuple[str, ...], str]:
    """Read what an owner confirmed and wrote; refuse unknown questions and unreadable texts."""
    names = [] if checked is None else checked
    if not isinstance(names, list) or any(
        not isinstance(name, str) or name not in CHECKLIST for name in names
    ):
        raise _bad_review(f"the checklist has only {', '.join(CHECKLIST)}")
    text = "" if reason is None else reason
    if not isinstance(text, str) or len(text) > MAX_REASON:
        raise _bad_review(f"a reason has at most {MAX_REASON:,} letters")
    if any(not letter.isprintable() and letter != "\n" for letter in text):
        raise _bad_review("a reason may have line ends, but no other control letters")
    return tuple(name for name in CHECKLIST if name in names), text.strip()


def approved_before(now: Submitted, known: Sequence[Submitted]) -> Submitted | None:
    """Return the approved program of the same author to compare with, or None if there is none.

    It is the last one of the same function or file name. If none has this name, it is the last one
    of any name: otherwise a new file name would hide what has changed.
    """
    others = [
        one
        for one in known
        if one.digest != now.digest
        and set(one.authors) & set(now.authors)
        and one.state == APPROVED
    ]
    mine = _named(now)
    same = [one for one in others if _named(one) == mine]
    return max(same or others, key=lambda one: one.decided_at, default=None)


def changes_json(before: Submitted, now: Submitted) -> Json:
    """Return a unified diff of two programs: of their declarations, and of their texts."""
    old, new = json.loads(before.program), json.loads(now.program)
    return {
        "digest": before.digest,
        "decided_at": before.decided_at,
        "title": title_in(old),
        "is_same_name": _named(before) == _named(now),
        "terms": _diff(terms_of(old), terms_of(new)),
        "text": _diff(_lines(old["source"]), _lines(new["source"])),
        "files": _file_changes(old, new),
    }


def title_in(program: Mapping[str, Any]) -> str:  # Any: JSON of our own store
    """Return what lists call a program of the store."""
    own = own_of(program["environment"])
    return title_of(program["kind"], program["name"], program.get("file", ""), own)


def environment_lines(known: Mapping[str, Any]) -> list[str]:  # Any: JSON of the service
    """Return what is known of a program's environment as lines that compare well.

    An image's texts are untrusted, so they are JSON in ASCII. Older services send fewer facts.
    """
    words = {
        "note of the operator": known["note"],
        "pulled from": known.get("source"),
        "manifest": known.get("manifest"),
        "runs": known["entry"],
        "in folder": known["folder"],
        "as user": known.get("user"),
    }
    return [
        f"{known['megabytes']} MB",
        *(f"{word}: {_quoted(said)}" for word, said in words.items() if said),
        *(f"setting: {_quoted(one)}" for one in known["settings"]),
        *(f"label {_quoted(key)}: {_quoted(one)}" for key, one in known.get("labels", {}).items()),
    ]


def environment_changes(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> list[str] | None:
    """Return a diff of what is known of two environments; None if one is not on this machine."""
    if old is None or new is None:
        return None
    return _diff(*(environment_lines(one) if one else [] for one in (old, new)))


def _quoted(said: Any) -> str:  # Any: JSON of the service
    return said if isinstance(said, str) and _PLAIN.fullmatch(said) else json.dumps(said)


def _file_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Json]:  # Any: our JSON
    """Return what became of each file besides the main one: a diff of those that differ.

    At most MAX_COMPARED lines of all of them together are compared.
    """
    before, now = ({one["path"]: one["text"] for one in p.get("modules", ())} for p in (old, new))
    made: list[Json] = []
    left = MAX_COMPARED
    for path in sorted(before.keys() | now.keys()):
        texts = [_lines(texts[path]) if path in texts else [] for texts in (before, now)]
        state = "changed" if all(texts) else "added" if path in now else "removed"
        if texts[0] == texts[1]:
            continue
        left -= max(map(len, texts))
        made.append({"path": path, "state": state, "text": None if left < 0 else _diff(*texts)})
    return made


def terms_of(program: Mapping[str, Any]) -> list[str]:  # Any: JSON of our own store
    """Return what an owner approves of a program besides its text, as lines that compare well."""
    libraries, _, own = str(program["environment"]).partition("+")
    return [
        f"kind: {program['kind']}",
        f"name: {program['name']}",
        f"libraries: {libraries}",
        f"environment: {own or 'none'}",
        *([f"main file: {program['main']}"] if program.get("modules") else []),
        *(f"column: {name}" for name in program["columns"]),
        *(f"file: {name}" for name in program.get("files", ())),
        *map(output_line, program["outputs"]),
    ]


def output_line(output: Mapping[str, Any]) -> str:
    """Return an output's declaration as one line: name, shape, range, step and place."""
    sizes = ",".join(map(str, output.get("shape", ())))
    shape = f"[{sizes}]" if sizes else ""
    places = ",".join(map(str, output["at"]))
    place = f" at {places}" if places else ""
    return (
        f"output: {output['name']}{shape} from {output['lower']} to {output['upper']} in steps of "
        f"{output['step']}, in {output['path']}{place}{table_words(output)}"
    )


def table_words(output: Mapping[str, Any]) -> str:
    """Return the rows, columns and key of a table's declaration; "" for any other output."""
    if not output.get("rows"):
        return ""
    key = f", rows named by {output['key']}" if output.get("key") else ""
    return f", rows {', '.join(output['rows'])}, columns {', '.join(output['columns'])}{key}"


def _named(one: Submitted) -> tuple[bool, str]:
    """Return whether a program is a function, and its name; else its file or its environment."""
    program = json.loads(one.program)
    if program["kind"] == "function":
        return True, program["name"]
    return False, program.get("file") or own_of(program["environment"])


def _lines(source: str) -> list[str]:
    return source.replace("\r\n", "\n").split("\n")


def _diff(old: list[str], new: list[str]) -> list[str] | None:
    """Return a unified diff without file names; None if the differing parts are too long."""
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    if max(len(old), len(new)) - same > MAX_COMPARED:
        return None
    shown = max(0, same - 3)
    lines = [*difflib.unified_diff(old[shown:], new[shown:], lineterm="")][2:]
    return [_moved(line, shown) if line.startswith("@@") else line for line in lines]


def _moved(head: str, by: int) -> str:
    """Return the head of a hunk with its line numbers counted from the start of the text."""
    _, old, new, _ = head.split(" ")
    return f"@@ {_from(old, by)} {_from(new, by)} @@"


def _from(part: str, by: int) -> str:
    start, comma, count = part[1:].partition(",")
    return f"{part[0]}{int(start) + by}{comma}{count}"


def _bad_review(cause: str) -> Refused:
    return Refused(
        "bad-pipeline",
        f"The decision cannot be read: {cause}.",
        "Correct the decision, and send it again.",
    )


def missing_words(own: str) -> str:
    """Say that a program's own environment is not on this machine, and who adds it again."""
    what = "image" if own.startswith("image-") else "environment"
    return (
        f"Its {what} {own[:24]} is not on this machine, or its files have changed. The operator "
        "adds it again with `sfumato pipeline environment add`; the program then needs no new "
        "approval."
    )
