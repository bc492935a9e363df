"""The rooms in docs/explanation/house.md are those of the import walls, and of the folders."""

from __future__ import annotations

import re
from pathlib import Path

from house.import_walls import EVERYTHING, KINDS, ROOMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "house.md").read_text("utf-8")
PACKAGE = ROOT / "src" / "sfumato"


def lines() -> dict[str, str]:
    """Return room -> the cell that says what it may import."""
    cells = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| `")]
    return {first.strip(" `").removesuffix("/"): may.strip(" |") for first, _, may in cells}


def test_every_room_has_its_line_and_no_line_is_of_a_room_that_is_gone() -> None:
    there = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    kinds = {f"features/*/{kind}.py" for kind in KINDS}
    assert set(lines()) == there - {"features"} | kinds


def test_a_line_says_what_the_tables_let_a_room_and_a_kind_of_file_have() -> None:
    said = lines()
    allowed = {room: may for room, may in ROOMS.items() if room in said}
    allowed |= {f"features/*/{kind}.py": outside for kind, (outside, _) in KINDS.items()}
    for name, may in allowed.items():
        if may == EVERYTHING:
            assert said[name] == "everything", name
            continue
        words = set(re.findall(r"[a-z_*][a-z_.*]*", said[name]))
        assert [one for one in may if one not in words] == [], name
        assert may or said[name].startswith("nothing"), name


def test_the_picture_names_every_feature() -> None:
    names = {path.parent.name for path in PACKAGE.glob("features/*/__init__.py")}
    assert names - set(re.findall(r"\w+", PAGE.split("```")[1])) == set()
