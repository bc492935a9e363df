"""An export in a standard becomes a data set by one command, and answers clinicians rightly."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sfumato
from support.exports.clinical_question import Cell, Question, cells_of, check_close, check_held
from support.small_vaults import make_vault, run

STANDARDS = ("omop", "fhir", "redcap", "bids")
CLINICAL = ("omop", "fhir", "redcap")
_MORE = {"redcap": ("--missing", "-99")}


def write(standard: str, folder: Path, people: int) -> Path:
    module = importlib.import_module(f"support.exports.{standard}_export")
    made: Path = getattr(module, f"write_{standard}")(folder / "export", people)
    return made


def raw_of(standard: str, export: Path) -> duckdb.DuckDBPyConnection:
    module = importlib.import_module(f"support.exports.{standard}_export")
    raw: duckdb.DuckDBPyConnection = getattr(module, f"raw_{standard}")(export)
    return raw


def questions_of(standard: str) -> Sequence[Question]:
    found: Any = importlib.import_module(f"support.exports.{standard}_questions")
    questions: Sequence[Question] = found.QUESTIONS
    return questions


def asked(standard: str, folder: Path, people: int, most: int) -> list[Cell]:
    """Publish a new export by one command, ask the first questions, and return all numbers."""
    export, vault = write(standard, folder, people), make_vault(folder)
    words = ("add", "cohort", str(export), "--as", standard, "--years", "2015-2023")
    budget = ("--budget", "1000,1e-3", "--yes", *_MORE.get(standard, ()))
    done = run(vault, *words, *budget)
    assert done.returncode == 0, done.stdout + done.stderr
    raw = raw_of(standard, export)
    with sfumato.open(vault) as opened:
        questions = questions_of(standard)[:most]
        return [cell for one in questions for cell in cells_of(opened["cohort"], raw, one)]


@pytest.mark.parametrize("standard", STANDARDS)
def test_one_command_leads_to_five_answers_that_hold_the_truth(
    standard: str, tmp_path: Path
) -> None:
    check_held(asked(standard, tmp_path, 300, 5))


@pytest.mark.slow
@pytest.mark.parametrize("standard", CLINICAL)
def test_25_questions_about_20000_people_hold_the_truth_and_are_close(
    standard: str, tmp_path: Path
) -> None:
    assert len(questions_of(standard)) >= 25
    cells = asked(standard, tmp_path, 20_000, 100)
    check_held(cells)
    check_close(cells, share=0.25, of=1000)
