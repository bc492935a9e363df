"""Record the verdict on each mutant, a line of JSON each, and why some survive."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tools.mutate.mutants import Mutant

HOME = Path(__file__).parent
RECORD = HOME / "record.jsonl"
EXPLAINED = HOME / "explained.toml"
Verdict = Literal["killed", "slow", "survived"]  # slow: stopped at the time limit, so it is seen


@dataclass(frozen=True)
class Line:
    """A mutant's verdict, on a day, and the test that noticed it."""

    key: str
    area: str
    verdict: Verdict
    by: str
    date: str
    change: str


def change_of(mutant: Mutant) -> str:
    """Return the change for a reader."""
    before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
    return f"line {mutant.line}: {before} -> {after}"


def read_record(path: Path = RECORD) -> dict[str, Line]:
    """Return the last line of each mutant."""
    if not path.exists():
        return {}
    lines = (Line(**json.loads(text)) for text in path.read_text("utf-8").splitlines())
    return {line.key: line for line in lines}


def add_line(line: Line, path: Path = RECORD) -> None:
    """Append a verdict, so that a run that is stopped has lost nothing."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line), ensure_ascii=False) + "\n")


def read_explained(path: Path = EXPLAINED) -> dict[str, str]:
    """Return why a survivor means the same for every input, by its key."""
    return dict(tomllib.loads(path.read_text("utf-8"))) if path.exists() else {}


@dataclass(frozen=True)
class Score:
    """How many of some mutants were noticed."""

    killed: int
    explained: int
    unexplained: tuple[Line, ...]
    unknown: int  # not run yet

    @property
    def share(self) -> float:
        """Return which share of those that change the meaning was noticed."""
        ran = self.killed + len(self.unexplained)
        return self.killed / ran if ran else 1.0


def score_of(
    some: Iterable[Mutant], record: Mapping[str, Line], explained: Mapping[str, str]
) -> Score:
    """Return the score of these mutants."""
    wanted = list(some)
    lines = [record[mutant.key] for mutant in wanted if mutant.key in record]
    lived = [line for line in lines if line.verdict == "survived"]
    return Score(
        len(lines) - len(lived),
        sum(line.key in explained for line in lived),
        tuple(line for line in lived if line.key not in explained),
        len(wanted) - len(lines),
    )
