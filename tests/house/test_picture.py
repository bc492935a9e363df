"""The picture of the house in docs/house.md is that of the table of imports, and of the folders."""

from __future__ import annotations

import re
from pathlib import Path

from imports import EVERYTHING, MAY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "house.md").read_text("utf-8")
INSIDE = {"faces.cli": "faces", "faces.console": "faces"}  # told in the line of the room around


def lines() -> dict[str, str]:
    """Return room -> the cell that says what it may import."""
    found = {}
    for line in PAGE.splitlines():
        if line.startswith("| `"):
            rooms, _, may = (cell.strip() for cell in line.strip("|").split(" | "))
            for room in re.findall(r"`(\w+)(?:/|\.py)`", rooms):
                found[room] = may.strip(" |")
    return found


def test_every_room_has_its_line_and_no_line_is_of_a_room_that_is_gone() -> None:
    package = ROOT / "src" / "sfumato"
    names = {path.name for path in package.iterdir()} - {"py.typed"}  # a mark, and no code
    there = {name.removesuffix(".py") for name in names if not name.startswith("__")}
    assert set(lines()) == there


def test_a_line_says_what_the_table_of_imports_lets_a_room_have() -> None:
    said = lines()
    for room, allowed in MAY.items():
        cell = said.get(INSIDE.get(room, room))
        if cell is None:  # the package itself, and `python -m sfumato`
            continue
        if allowed == EVERYTHING:
            assert cell == "everything", room
            continue
        others = [name.removeprefix("faces.") for name in allowed if name not in (room, "faces")]
        words = set(re.findall(r"[a-z_][a-z_.]*", cell))
        assert [name for name in others if name not in words] == [], room
        if not others:
            assert cell.startswith("nothing"), room


def test_the_picture_names_every_service() -> None:
    drawn = PAGE.split("```")[1]
    services = (ROOT / "src" / "sfumato" / "services").iterdir()
    names = {path.name for path in services if path.is_dir() and path.name != "__pycache__"}
    assert names - set(re.findall(r"\w+", drawn)) == set()
