"""Generate the bundled synthetic files from a seed: `python -m sfumato.lab.generate`.

They contain no real person. Only `Random.random()` is drawn: Python guarantees that it stays the
same in every version, and no function of the C library rounds its result.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

FOLDER: Final = Path(__file__).parent / "data"
SEED: Final = 20261121
TOWN: Final = 1000
ZIPS: Final = tuple(f"003{number}" for number in range(10, 20))  # zips that no post office uses
NEIGHBOUR: Final = "52,00310,148500,true"  # unique by age, zip and a salary range
NEIGHBOURS_PLACE: Final = 617
VOLUNTEERS: Final = 60
NO_HEIGHT: Final = (13, 38)  # volunteers with a missing height
SWAPPED: Final = 26  # entry error: height and weight are swapped, so the height is 58
IN_METRES: Final = 44  # entry error: the height is in metres, 1.65


def medical() -> str:
    """Return the synthetic medical data set as CSV."""
    dice = Random(SEED)  # noqa: S311  # a synthetic file has to come out the same every time
    lines = [_townsperson(dice) for _ in range(TOWN - 1)]
    lines.insert(NEIGHBOURS_PLACE, NEIGHBOUR)
    return _text(["age,zip,salary,has_rare_disease", *lines])


def heights() -> str:
    """Return 60 synthetic volunteers as TSV, with missing values and entry errors."""
    dice = Random(SEED + 1)  # noqa: S311  # as above
    lines = [_volunteer(dice, number) for number in range(1, VOLUNTEERS + 1)]
    return _text(["participant_id\tage\tsex\tHeight\tWeight", *lines])


def write(folder: Path) -> None:
    """Write the synthetic files medical.csv and heights.tsv into a folder."""
    (folder / "medical.csv").write_bytes(medical().encode())
    (folder / "heights.tsv").write_bytes(heights().encode())


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _townsperson(dice: Random) -> str:
    age = int(96 * dice.random() * (0.6 + 0.4 * dice.random()))
    area = ZIPS[int(10 * dice.random() * dice.random())]  # the first zips have most people
    sick = dice.random() < 0.02 + age / 4000
    return f"{age},{area},{_salary(dice, age)},{str(sick).lower()}"


def _salary(dice: Random, age: int) -> int:
    """Draw a salary below 130,000, in hundreds; it grows with age, and large ones are rare."""
    luck = 0.5 + dice.random() + 0.6 * dice.random() * dice.random()
    if age < 18:
        return 0
    if age >= 67:
        return 100 * int(190 * luck)
    return 100 * int((260 + 10 * min(age - 18, 35)) * luck)


def _volunteer(dice: Random, number: int) -> str:
    sex = "f" if dice.random() < 0.5 else "m"
    age = 18 + int(9 * dice.random() * dice.random())
    height = round((163 if sex == "f" else 176) + 6 * _bell(dice))
    weight = round(height - 107 + 7 * _bell(dice))
    tall, heavy = _as_entered(number, height, weight)
    return f"sub-{number:02d}\t{age}\t{sex}\t{tall}\t{heavy}"


def _as_entered(number: int, height: int, weight: int) -> tuple[str, str]:
    if number in NO_HEIGHT:
        return "n/a", str(weight)
    if number == SWAPPED:
        return "58", "172"
    if number == IN_METRES:
        return "1.65", "55"
    return str(height), str(weight)


def _bell(dice: Random) -> float:
    """Draw from an approximate normal distribution: twelve uniform draws have variance one."""
    return sum(dice.random() for _ in range(12)) - 6


if __name__ == "__main__":
    write(FOLDER)
